"""One recurrent layer, or two that write an answer, for everyday tasks."""

from typing import Any

import keras
from common import classifiers
from keras import layers, ops

import keras_ln

ANSWER = 4  # The characters of a sum.


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class MeasuredAdam(keras.optimizers.Adam):
    """Adam that adds up the norms of the gradients, as they are unclipped.

    Attributes:
        norms: their sum, a variable.
    """

    def build(self, variables):
        if not self.built:
            # Devices that share a batch have a part of it each.
            self.norms = self.add_variable(
                (), dtype="float32", aggregation="mean", name="norms"
            )
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        # TensorFlow's gradients of an embedding may have a row twice, which
        # Keras' norms would not add, when it clips either. These norms do.
        dense = [ops.add(gradient, 0.0) for gradient in grads]
        square = sum(ops.sum(ops.square(gradient)) for gradient in dense)
        self.norms.assign_add(ops.sqrt(ops.cast(square, "float32")))
        super().apply(dense, trainable_variables)


class GradientNorm(keras.callbacks.Callback):
    """Adds the mean norm of the gradients since the last evaluation."""

    def __init__(self, optimizer: MeasuredAdam):
        super().__init__()
        self.optimizer = optimizer

    def on_epoch_begin(self, epoch, logs=None):
        self.optimizer.norms.assign(0.0)

    def on_epoch_end(self, epoch, logs=None):
        norms = float(keras.ops.convert_to_numpy(self.optimizer.norms))
        logs["gradient_norm"] = norms / self.params["steps"]


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def whole(y_true: Any, y_pred: Any) -> Any:
    """Whether all characters (B, T) of an answer are right, (B,)."""
    right = ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))
    return ops.all(right, axis=-1)


def recurrent(
    norm: str, units: int, gain: float | None = None, **kwargs: Any
) -> keras.layers.RNN:
    """The layer of a kind.

    Args:
        norm: "lstm", "lnlstm", "gru", "lngru" or "bnlstm".
        units: its size.
        gain: initial gain of the normalisations; None for the layer's own.
        **kwargs: its other arguments.
    """
    if gain is not None:
        kwargs["gamma_initializer"] = keras.initializers.Constant(gain)
    if norm == "bnlstm":
        return keras_ln.BNLSTM(units, **kwargs)
    if norm in ("lnlstm", "lngru"):
        cls = keras_ln.LNLSTM if norm == "lnlstm" else keras_ln.LNGRU
        return cls(units, **kwargs)
    # The maths of Keras' layers, as fast as the normalised ones.
    cls = keras_ln.LNLSTM if norm == "lstm" else keras_ln.LNGRU
    return cls(units, normalize=(), use_bias=True, **kwargs)


def build_model(
    norm: str = "lnlstm",
    units: int = 64,
    task: str = "addition",
    steps: int = 7,
    tokens: int | None = 12,
    outputs: int = 12,
    gain: float | None = None,
) -> keras.Model:
    """Builds the model of a task; it returns logits, or numbers.

    Args:
        norm: as of `recurrent`.
        units: the size of recurrent layers; word vectors have half of it.
        task: "addition", whose output is (B, 4, outputs), "characters", (B,
            steps, outputs), or another, (B, outputs).
        steps: the length of the inputs.
        tokens: how many there are, or None where the inputs are numbers.
        outputs: how many there are.
        gain: as of `recurrent`.
    """

    def layer(**kwargs):
        return recurrent(norm, units, gain, **kwargs)

    if tokens is None:
        numbers = 2 if task == "long_memory" else 1
        x = inputs = keras.Input((steps, numbers))
        if numbers == 1:
            # Of one number per step layer normalisation would leave the sign.
            x = ops.concatenate([x, 1 - x], axis=-1)
    else:
        inputs = keras.Input((steps,), dtype="int32")
        embed = layers.Embedding(
            tokens, max(1, units // 2), mask_zero=task == "verses"
        )
        x = embed(inputs)
    x = layer(return_sequences=task == "characters")(x)
    if task == "addition":
        x = layer(return_sequences=True)(layers.RepeatVector(ANSWER)(x))
    return keras.Model(inputs, classifiers.logits(layers.Dense(outputs)(x)))
