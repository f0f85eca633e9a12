"""The classifier that reads an image pixel by pixel."""

import keras
import numpy as np
from common import classifiers
from keras import layers, ops

import keras_ln


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class InitialNoise(layers.GaussianNoise):
    """Noise in training, and while batch statistics are averaged.

    Steps that have seen black pixels alone have the statistics of the noise.

    Attributes:
        averaging: whether statistics are averaged.
    """

    averaging = False

    def call(self, inputs, training=False):
        return super().call(inputs, training=training or self.averaging)


def build_model(
    norm: str = "layer",
    units: int = 100,
    steps: int = 784,
    classes: int = 10,
    gain: float | None = None,
    noise: float = 0.1,
) -> keras.Model:
    """Builds the classifier of sequences (B, steps, 1); it returns logits.

    The LSTM sees every pixel x as [x, 1 - x].

    Args:
        norm: "none", "batch" or "layer".
        units: the size of the LSTM.
        steps: the pixels.
        classes: the outputs.
        gain: initial gain of the normalisation; None for the layer's own.
        noise: standard deviation of the initial h of "batch", in training.
    """
    kwargs = {}
    if gain is not None and norm != "none":
        kwargs["gamma_initializer"] = keras.initializers.Constant(gain)
    inputs = keras.Input((steps, 1))
    # Of one number per step layer normalisation would leave the sign.
    both = ops.concatenate([inputs, 1 - inputs], axis=-1)
    initial_state = None
    if norm == "batch":
        # The quick preset has too few updates for a momentum of 0.99.
        lstm = keras_ln.BNLSTM(units, momentum=0.9, **kwargs)
        zeros = ops.tile(ops.zeros_like(inputs[:, 0]), (1, units))
        noisy = InitialNoise(noise, seed=_new_seed())(zeros)
        initial_state = [noisy, zeros]
    elif norm == "layer":
        lstm = keras_ln.LNLSTM(units, **kwargs)
    else:
        lstm = keras_ln.LNLSTM(units, normalize=())
    x = lstm(both, initial_state=initial_state)
    x = layers.Dense(classes)(x)
    # All gates start with the identity, as the authors found best.
    lstm.cell.recurrent_kernel.assign(np.tile(np.eye(units), 4))
    return keras.Model(inputs, classifiers.logits(x))


def _new_seed() -> int:
    # Without a seed torch would draw from its global generator.
    return int(keras.random.randint((), 0, 2**31 - 1))
