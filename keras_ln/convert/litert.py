"""LiteRT files whose LSTM layers are LiteRT's own op."""

import pathlib
import tempfile
import warnings
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from keras_ln import engine
from keras_ln._keras import layers_within
from keras_ln.convert.fast_rnn import ADVICE, Fast, ToKeras, reason_without_twin
from keras_ln.engine import arguments
from keras_ln.layers import LNLSTM
from keras_ln.layers.rnn.fast import FastLSTM, reason_for_keras
from keras_ln.ops import portable

FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"
# The bound at which the op clips c; and what the largest |c| must pass, with a
# margin: LiteRT takes a power of two for the range of c, and its int8 op leaves
# out the tanh for ranges below 1.
_CLIP, _LEAST = 10.0, 0.55


class LiteRTRow(NamedTuple):
    """A recurrent layer of a model, and what a LiteRT file has for it.

    `op` is the name of LiteRT's op, or "unrolled" for ordinary operations, step
    by step; `reason` is why, or "".
    """

    layer: str
    class_name: str
    op: str
    reason: str


def litert(
    model: Any,
    path: Any,
    batch_size: int = 1,
    quantize: Literal["int8"] | None = None,
    representative: Any = None,
) -> list[LiteRTRow]:
    """Writes a LiteRT file in which LSTM layers are LiteRT's own op.

    `keras.layers.LSTM` and `LNLSTM(normalize=())`, stacked and in
    Bidirectional, become UNIDIRECTIONAL_SEQUENCE_LSTM; every other recurrent
    layer is unrolled. The op clips c at 10, and keeps its states from one
    invocation to the next: call `reset_all_variables()` of the interpreter
    before each batch of sequences. The model itself does not change.

    Args:
        model: a functional or Sequential model, built, on TensorFlow, whose
            inputs have a known number of steps.
        path: the file to write.
        batch_size: the number of rows of each invocation.
        quantize: "int8" for a file that computes in int8, its inputs and
            outputs too; None for float32.
        representative: an array (N, ...) with examples of the input, or a list
            of them in the order of the model's inputs. "int8" needs it for
            its ranges: a layer in which the size of c stays below 0.55 on it,
            where LiteRT's int8 op is wrong, is unrolled. A warning names the
            layers in which the size of c passes 10.

    Returns:
        A row for each recurrent layer, with the fields `layer`, `class_name`,
        `op` and `reason`.

    Raises:
        ValueError: on another backend; for wrong arguments or an unknown number
            of steps; and as `with_fast_rnn`.
    """
    _check(model, batch_size, quantize, representative)
    clone = _Fused().run(model, ADVICE)
    recurrent = [
        part
        for part in layers_within(clone)
        if isinstance(part, keras.layers.RNN)
    ]
    why = {layer.name: _reason(layer) for layer in recurrent}
    for layer in recurrent:
        layer.unroll = True
    names = [x.name for x in model.inputs]
    samples = _samples(names, representative, batch_size)
    if samples:
        most, expected = _largest_c(clone, recurrent, samples)
        _warn_of_clipping(most)
        for layer in recurrent if quantize else ():
            if most.get(layer.name, 1.0) < _LEAST:
                layer.against_litert = (
                    f"|c| is at most {most[layer.name]:.2g} on the "
                    "representative data, and LiteRT's int8 op is wrong below "
                    f"{_LEAST:g}."
                )
    signature = [
        keras.InputSpec(
            shape=(batch_size, *x.shape[1:]), dtype=x.dtype, name=x.name
        )
        for x in model.inputs
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        portable(unroll=True, fused_lstm=True),
    ):
        clone.export(
            folder,
            format="tf_saved_model",
            input_signature=signature if len(names) == 1 else [signature],
            verbose=False,
        )
        why |= engine.fused_lstms() or {}
        if quantize is None:
            data = engine.litert.convert(folder)
        else:
            # The new quantizer is wrong for a second LSTM (TF 2.21); the old
            # one knows fewer ops, and no two gates with equal biases.
            several = len(recurrent) > 1 and not any(why.values())
            quantizers = (True, False) if several else (True,)
            data = _in_int8(folder, samples, expected, quantizers)
    pathlib.Path(path).write_bytes(data)
    return [
        LiteRTRow(
            layer.name,
            type(layer).__name__.removeprefix("Fast"),
            "unrolled" if why[layer.name] else FUSED,
            why[layer.name],
        )
        for layer in recurrent
    ]


class _Fused(Fast):
    """The clone with layers that may become the op."""

    function = "litert"

    def replaces(self, layer: Any) -> bool:
        """LNLSTM without norms too."""
        if type(layer) is LNLSTM:
            return reason_without_twin(layer) is None
        return super().replaces(layer)

    def replacement(self, layer: Any) -> Any:
        """The fast layer of Keras' twin."""
        if type(layer) is LNLSTM:
            layer = ToKeras().replacement(layer)
        return super().replacement(layer)


def _reason(layer):
    if isinstance(layer, FastLSTM):
        return "It was not traced."
    if isinstance(layer, LNLSTM):
        return f"{reason_without_twin(layer)}"
    if type(layer) is keras.layers.LSTM:
        return f"{reason_for_keras(layer)}"
    return "LiteRT has this op for LSTM layers alone."


def _check(model, batch_size, quantize, representative):
    if engine.litert is None:
        raise ValueError(
            "litert needs Keras' backend tensorflow. Received: "
            f"{keras.backend.backend()!r}. Load the model's file in a program "
            "with KERAS_BACKEND=tensorflow."
        )
    arguments.check_positive_integer("batch_size", batch_size)
    if quantize not in (None, "int8"):
        raise arguments.wrong("quantize", "None or 'int8'", quantize)
    if quantize is not None and representative is None:
        raise ValueError(
            "quantize='int8' needs examples of the input as "
            "`representative`, for the ranges of its numbers."
        )
    for x in getattr(model, "inputs", None) or ():
        if None in x.shape[1:]:
            raise ValueError(
                "litert needs a known number of steps, such as "
                f"keras.Input((100, 8)). Received: input {x.name!r} of shape "
                f"{tuple(x.shape)}"
            )


def _samples(names, representative, rows):
    """Dictionaries of arrays with so many rows."""
    if representative is None:
        return []
    several = isinstance(representative, list | tuple)
    arrays = [*representative] if several else [representative]
    arrays = [np.asarray(array) for array in arrays]
    if len(arrays) != len(names) or min(map(len, arrays)) < rows:
        raise ValueError(
            "Argument `representative` must be an array with at least "
            f"batch_size={rows} rows for each input of the model, {names}. "
            f"Received: shapes {[array.shape for array in arrays]}"
        )
    return [
        {n: a[k : k + rows] for n, a in zip(names, arrays, strict=True)}
        for k in range(0, len(arrays[0]) - rows + 1, rows)
    ]


def _largest_c(clone, recurrent, samples):
    """The largest |c| of each layer that may be the op; the first outputs."""
    most: dict[str, float] = {}

    def measured(name, call):
        def run(inputs, states, training=False):
            h, states = call(inputs, states, training=training)
            c = np.abs(keras.ops.convert_to_numpy(states[1])).max()
            most[name] = max(most.get(name, 0.0), float(c))
            return h, states

        return run

    fused = [layer for layer in recurrent if isinstance(layer, FastLSTM)]
    for layer in fused:
        layer.cell.call = measured(layer.name, layer.cell.call)
    found = []
    for sample in samples:
        arrays = list(sample.values())
        y = clone(arrays if len(arrays) > 1 else arrays[0], training=False)
        found.append(keras.ops.convert_to_numpy(keras.tree.flatten(y)[0]))
    for layer in fused:
        del layer.cell.call
    return most, np.concatenate(found)


def _in_int8(folder, samples, expected, quantizers):
    """The best file of the quantizers, and a warning if it is bad."""
    found = []
    for new in quantizers:
        data = engine.litert.convert(folder, samples, new)
        moved = _rms(engine.litert.run(data, samples) - expected)
        found.append((moved, data))
    moved, data = min(found)
    if moved > 0.05 * (size := _rms(expected)):
        warnings.warn(
            f"int8 moves the outputs by {moved:.2g} (rms) on the "
            f"representative data, on which they are {size:.2g}. Compare it "
            "with float32 before you use the file; normalised layers magnify "
            "rounding.",
            stacklevel=3,
        )
    return data


def _rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def _warn_of_clipping(most):
    if large := {n: c for n, c in most.items() if c > _CLIP}:
        listed = ", ".join(f"{n!r} ({c:.3g})" for n, c in large.items())
        warnings.warn(
            f"LiteRT's LSTM clips c at {_CLIP:g}, and |c| passes it on the "
            f"representative data in {listed}: the file computes other numbers "
            "than the model.",
            stacklevel=3,
        )
