"""The classifier that reads an image pixel by pixel."""

import keras
import numpy as np
from common import recurrent
from keras import layers, ops

import keras_ln


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class InitialNoise(layers.GaussianNoise):
    """Noise in training, and while batch statistics are averaged.

    Steps that have seen only black pixels have the statistics of the noise.

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
    forget_steps: int | None = None,
) -> keras.Model:
    """Builds the classifier of sequences (B, steps, 1); it returns logits.

    The LSTM sees every pixel x as [x, 1 - x].

    Args besides the flags of `sequential_mnist.py`:
        steps: the number of pixels.
        classes: the number of outputs.
        noise: standard deviation of the initial h of "batch", in training.
    """
    inputs = keras.Input((steps, 1))
    # Layer normalisation would keep only the sign of a single number.
    both = ops.concatenate([inputs, 1 - inputs], axis=-1)
    initial_state = None
    if norm == "batch":
        # The quick preset has too few updates for a momentum of 0.99.
        lstm = recurrent.layer(
            keras_ln.BNLSTM, norm, units, gain, forget_steps, momentum=0.9
        )
        zeros = ops.tile(ops.zeros_like(inputs[:, 0]), (1, units))
        # Without a seed torch would draw from its global generator.
        seed = int(keras.random.randint((), 0, 2**31 - 1))
        noisy = InitialNoise(noise, seed=seed)(zeros)
        initial_state = [noisy, zeros]
    else:
        lstm = recurrent.layer(keras_ln.LNLSTM, norm, units, gain, forget_steps)
    x = lstm(both, initial_state=initial_state)
    x = layers.Dense(classes)(x)
    # All gates start with the identity, as the authors found best.
    lstm.cell.recurrent_kernel.assign(np.tile(np.eye(units), 4))
    return keras.Model(inputs, recurrent.logits(x))
