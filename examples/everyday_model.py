"""One recurrent layer, or two that write an answer, for everyday tasks."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from common import recurrent
from common.datasets import plain_text, practice
from keras import layers, ops

import keras_ln

ANSWER = 4  # The characters of a sum.
WRITTEN = practice.PHONES + 1  # The phones of a word, and its end.
DROPOUT = 0.3  # For chorales, which are few.
# Each kind's class, and whether it is normalised. Without normalisation it
# computes Keras' layer, as fast as the other kinds.
LAYERS = {
    "lstm": (keras_ln.LNLSTM, "none"),
    "lnlstm": (keras_ln.LNLSTM, "layer"),
    "bnlstm": (keras_ln.BNLSTM, "batch"),
    "gru": (keras_ln.LNGRU, "none"),
    "lngru": (keras_ln.LNGRU, "layer"),
}


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def whole(y_true: Any, y_pred: Any) -> Any:
    """Whether all characters (B, T) of an answer are right, (B,)."""
    right = ops.equal(ops.cast(y_true, "int32"), ops.argmax(y_pred, axis=-1))
    return ops.all(right, axis=-1)


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def whole_word(y_true: Any, y_pred: Any) -> Any:
    """Whether all phones (B, T) of a word but padding are right, (B,).

    The input is the true phones. A word is entirely right with them exactly
    when it is entirely right with the predicted phones.
    """
    wanted = ops.cast(y_true, "int32")
    right = ops.equal(wanted, ops.argmax(y_pred, axis=-1))
    padding = ops.equal(wanted, plain_text.PADDING)
    return ops.all(ops.logical_or(right, padding), axis=-1)


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def frame_nll(y_true: Any, y_pred: Any) -> Any:
    """The nats of frames of notes (B, T, P), each with its logit; (B, T).

    Padding (notes of -1) has 0 nats, and the other frames are scaled so that
    the mean over all frames is the mean without padding.
    """
    there = ops.cast(y_true[..., 0] >= 0, y_pred.dtype)
    nats = ops.binary_crossentropy(
        ops.maximum(y_true, 0), y_pred, from_logits=True
    )
    return there * ops.sum(nats, axis=-1) / ops.mean(there)


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def right_notes(y_true: Any, y_pred: Any) -> Any:
    """Notes true and predicted as a share of notes true or predicted, (B,).

    Frames without a sound, such as padding, are left out.
    """
    sounds, said = ops.greater(y_true, 0), ops.greater(y_pred, 0)
    said = ops.logical_and(said, ops.any(sounds, axis=-1, keepdims=True))
    both, any_ = (
        ops.sum(ops.cast(join(sounds, said), "float32"), axis=(1, 2))
        for join in (ops.logical_and, ops.logical_or)
    )
    return both / any_


def outputs(task: str, data: Any) -> int:
    """The number of outputs of a step or a sequence."""
    if data.y.dtype.kind == "f":
        return data.y.shape[-1]
    if task == "spelling":
        return len(data.tokens)
    return int(max(part.max() for part in (data.y, data.test_y))) + 1


def measured(task: str, data: Any) -> tuple[Any, list[Any]]:
    """A task's loss, and its metric `accuracy` if it has one."""
    mean = keras.metrics.MeanMetricWrapper
    crossentropy = keras.losses.SparseCategoricalCrossentropy
    if task == "chorales":
        return frame_nll, [mean(right_notes, "accuracy")]
    if data.y.dtype.kind == "f":
        return keras.losses.MeanSquaredError(), []
    if task == "spelling":
        loss = crossentropy(from_logits=True, ignore_class=plain_text.PADDING)
        return loss, [mean(whole_word, "accuracy")]
    right = (
        mean(whole, "accuracy")
        if task == "addition"
        else keras.metrics.SparseCategoricalAccuracy("accuracy")
    )
    return crossentropy(from_logits=True), [right]


def unmasked(x: Any, there: Any) -> Any:
    """States (B, T, U), zero in padding, without a mask (B, T) of Keras.

    Keras would pass a mask to metrics with one value for each sequence.
    """
    return ops.where(there[..., None], x, ops.zeros_like(x))


def build_model(
    norm: str = "lnlstm",
    units: int = 64,
    task: str = "addition",
    steps: int = 7,
    tokens: int | None = 12,
    outputs: int = 12,
    gain: float | None = None,
    forget_steps: int | None = None,
    layer: Callable[..., Any] | None = None,
    outside: bool = False,
) -> keras.Model:
    """Builds the model of a task; it returns logits, or numbers.

    Args besides the flags of `everyday.py`:
        units: the size of recurrent layers; word vectors have half of it.
        task: "addition", whose output is (B, 4, outputs), "characters" and
            "chorales", (B, steps, outputs), "spelling", (B, phones, outputs),
            or another, (B, outputs).
        steps: the length of the inputs.
        tokens: the number of tokens, or None if the inputs are numbers.
        outputs: the number of outputs.
        layer: from keyword arguments to a recurrent layer of `units`, in place
            of `norm`, `gain` and `forget_steps`.
        outside: whether `keras.layers.LayerNormalization` follows each
            embedding and each recurrent layer. Numbers that are not embedded
            keep their values, which it would destroy.
    """
    if layer is None:
        usual = (*LAYERS[norm], units, gain, forget_steps)
        layer = functools.partial(recurrent.layer, *usual)

    def normalized(x):
        return layers.LayerNormalization()(x) if outside else x

    if tokens is None:
        numbers = {"long_memory": 2, "movements": 6}.get(task, 1)
        if task == "chorales":
            numbers = outputs + 1  # See `practice.chorales`.
        x = inputs = keras.Input((steps, numbers))
        if numbers == 1:
            # Layer normalisation would keep only the sign of a single number.
            x = ops.concatenate([x, 1 - x], axis=-1)
        if task == "movements":
            x = layers.Masking()(x)
    else:
        inputs = keras.Input((steps,), dtype="int32")
        vectors = (tokens, max(1, units // 2), recurrent.words())
        embed = layers.Embedding(*vectors, mask_zero=task == "verses")
        if task == "spelling":
            word, before = inputs[:, :-WRITTEN], inputs[:, -WRITTEN:]
            read, there = (
                ops.not_equal(part, plain_text.PADDING)
                for part in (word, before)
            )
            _, *states = layer(return_state=True)(
                normalized(embed(word)), mask=read
            )
            x = layer(return_sequences=True)(
                normalized(embed(before)), initial_state=states, mask=there
            )
            answer = layers.Dense(outputs)(unmasked(normalized(x), there))
            return keras.Model(inputs, recurrent.logits(answer))
        x = normalized(embed(inputs))
    mask = x[..., -1] > 0 if task == "chorales" else None
    x = layer(return_sequences=task in ("characters", "chorales"))(x, mask=mask)
    x = normalized(x)
    if task == "chorales":
        x = layers.Dropout(DROPOUT)(unmasked(x, mask))
    if task == "addition":
        x = layer(return_sequences=True)(layers.RepeatVector(ANSWER)(x))
        x = normalized(x)
    return keras.Model(inputs, recurrent.logits(layers.Dense(outputs)(x)))
