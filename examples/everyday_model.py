"""One recurrent layer, or two that write an answer, for everyday tasks."""

from typing import Any

import keras
from common import classifiers, recurrent
from keras import layers, ops

import keras_ln

ANSWER = 4  # The characters of a sum.
# Of each kind the class, and whether it is normalised. Plain ones have the
# maths of Keras' layers, and are as fast as the others.
LAYERS = {
    "lstm": (keras_ln.LNLSTM, "none"),
    "lnlstm": (keras_ln.LNLSTM, "layer"),
    "bnlstm": (keras_ln.BNLSTM, "batch"),
    "gru": (keras_ln.LNGRU, "none"),
    "lngru": (keras_ln.LNGRU, "layer"),
}


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


def build_model(
    norm: str = "lnlstm",
    units: int = 64,
    task: str = "addition",
    steps: int = 7,
    tokens: int | None = 12,
    outputs: int = 12,
    gain: float | None = None,
    forget_steps: int | None = None,
) -> keras.Model:
    """Builds the model of a task; it returns logits, or numbers.

    Args, beside the flags of `everyday.py`:
        units: the size of recurrent layers; word vectors have half of it.
        task: "addition", whose output is (B, 4, outputs), "characters", (B,
            steps, outputs), or another, (B, outputs).
        steps: the length of the inputs.
        tokens: how many there are, or None where the inputs are numbers.
        outputs: how many there are.
    """

    def layer(**kwargs):
        own = LAYERS[norm]
        return recurrent.layer(*own, units, gain, forget_steps, **kwargs)

    if tokens is None:
        numbers = 2 if task == "long_memory" else 1
        x = inputs = keras.Input((steps, numbers))
        if numbers == 1:
            # Of one number per step layer normalisation would leave the sign.
            x = ops.concatenate([x, 1 - x], axis=-1)
    else:
        inputs = keras.Input((steps,), dtype="int32")
        embed = layers.Embedding(
            tokens,
            max(1, units // 2),
            embeddings_initializer=recurrent.words(),
            mask_zero=task == "verses",
        )
        x = embed(inputs)
    x = layer(return_sequences=task == "characters")(x)
    if task == "addition":
        x = layer(return_sequences=True)(layers.RepeatVector(ANSWER)(x))
    return keras.Model(inputs, classifiers.logits(layers.Dense(outputs)(x)))
