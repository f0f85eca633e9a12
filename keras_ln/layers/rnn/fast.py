"""Keras' LSTM, GRU and RNN with the loops over time of this package.

Weights, states, configs and dropout are those of Keras' layers. `with_fast_rnn`
puts these layers into a model.

Letters: B batch, T time, D input features, U units.
"""

from typing import Any

import keras
import numpy as np

from keras_ln import engine
from keras_ln.engine.portable import trace_context
from keras_ln.engine.spec import Cell, RunOptions, spec_of
from keras_ln.layers.rnn.base_rnn import time_mask
from keras_ln.ops.cells.gru import LN_GRU
from keras_ln.ops.cells.lstm import LN_LSTM
from keras_ln.ops.public import over_time

# With nothing normalised they compute Keras' cells.
_EQUATIONS: dict[Any, Cell] = {
    keras.layers.LSTMCell: LN_LSTM,
    keras.layers.GRUCell: LN_GRU,
}
# Whether one op per sequence is faster than Keras' loop without the CPU
# extension: in training, and in prediction.
_FASTER_WITHOUT_KERNELS = {"torch": (True, False)}
KERAS = "keras"


def reason_for_keras(layer: Any) -> str | None:
    """Why no op of this package can compute a layer of Keras, or None."""
    if getattr(layer, "unroll", False):
        return "unroll=True asks for an unrolled loop."
    if getattr(layer, "use_cudnn", None) is True:
        return "use_cudnn=True asks for cuDNN."
    for cell in cells_of(layer):
        if (reason := _reason_of_cell(cell)) is not None:
            return reason
        # The weights would be read in the dtype of the layer.
        if cell.compute_dtype != layer.compute_dtype:
            return (
                f"The layer computes in {layer.compute_dtype}, its cell in "
                f"{cell.compute_dtype}."
            )
    return None


def _reason_of_cell(cell: Any) -> str | None:
    if type(cell) not in _EQUATIONS:
        return f"Cells of class {type(cell).__name__} are not supported."
    if not getattr(cell, "reset_after", True):
        return "reset_after=False is not supported."
    for name, known in (
        ("activation", "tanh"),
        ("recurrent_activation", "sigmoid"),
    ):
        function = getattr(cell, name)
        if function is not keras.activations.get(known):
            given = getattr(function, "__name__", function)
            return f"It needs {name}={known!r}. Received: {given}."
    if cell.compute_dtype not in ("float32", "float64"):
        return f"Keras' layer is faster in {cell.compute_dtype}."
    if cell.dropout >= 1:
        return "Keras' cells drop nothing with dropout=1, its layers all."
    if hasattr(cell, "dropout_mask_count") and (
        cell.dropout or cell.recurrent_dropout
    ):
        return "Keras drops other entries for each gate here."
    return None


def implementation_of(layer: Any, training: bool) -> tuple[str, str]:
    """The implementation of a layer of this file here and now, and why.

    Returns:
        A name as of `ops.implementation`, or "keras" for Keras' loop; and a
        sentence on why the CPU extension does not run it, or "".
    """
    if (reason := reason_for_keras(layer)) is not None:
        return KERAS, reason
    if engine.is_exported():
        return KERAS, "An exported program has to run without keras_ln."
    if not engine.on_cpu():
        return KERAS, "Keras' loop is faster on devices other than CPUs."
    names, why = set(), ""
    for cell in cells_of(layer):
        spec = spec_of(_EQUATIONS[type(cell)], cell.compute_dtype)
        options = RunOptions(type(layer).__name__, context=trace_context())
        names.add(engine.chosen(spec, {}, options))
    if names == {"native"}:
        return "native", why
    backend = keras.backend.backend()
    why = f"CPU extension: {engine.kernels()}"
    faster = _FASTER_WITHOUT_KERNELS.get(backend, (False, False))
    if names == {"fused"} and faster[not training]:
        return "fused", why
    return KERAS, why


def cells_of(layer: Any) -> list[Any]:
    """The cells of a recurrent layer."""
    if isinstance(layer.cell, keras.layers.StackedRNNCells):
        return list(layer.cell.cells)
    return [layer.cell]


class FastLayer(keras.layers.RNN):
    """`keras.layers.RNN` with another loop over time."""

    def inner_loop(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: Any = False,
    ) -> Any:
        """Last output, outputs and states, as Keras' own loop gives them."""
        ran, _ = implementation_of(self, bool(training))
        given, mask = mask, time_mask(mask)
        states = keras.tree.flatten(initial_state)
        if ran == KERAS or not self._takes(sequences, states, mask):
            return super().inner_loop(
                sequences, initial_state, mask=given, training=training
            )
        if self.stateful and keras.backend.backend() == "torch":
            # The new states would overwrite these before the backward pass
            # has used them.
            states = [keras.ops.copy(state) for state in states]
        cells, final = cells_of(self), []
        last_output = outputs = sequences
        for k, cell in enumerate(cells):
            is_last = k == len(cells) - 1
            count = len(_EQUATIONS[type(cell)].states)
            own, states = states[:count], states[count:]
            dropped = None
            if training and cell.dropout:
                dropped = cell.get_dropout_mask(outputs[:, 0, :])
            last_output, outputs, new, _ = over_time(
                _EQUATIONS[type(cell)],
                keras.ops.cast(outputs, cell.compute_dtype),
                own,
                _weights(cell),
                mask=mask,
                input_mask=dropped,
                owner=type(self).__name__,
                training=bool(training),
                states_name="initial_state",
                # As Keras' loops do.
                zero_before_valid=keras.backend.backend() != "jax",
                # The first one turns the steps round, for all.
                go_backwards=bool(self.go_backwards) and k == 0,
                return_all_outputs=bool(self.return_sequences) or not is_last,
                zero_output_for_mask=bool(self.zero_output_for_mask)
                and is_last,
            )
            final += new
            if self.go_backwards and k == 0 and mask is not None:
                mask = keras.ops.flip(mask, axis=1)
        return (
            last_output,
            outputs,
            keras.tree.pack_sequence_as(initial_state, final),
        )

    def _takes(self, sequences: Any, states: list[Any], mask: Any) -> bool:
        """Whether the ops take such arrays as Keras' loop takes them."""
        if len(sequences.shape) != 3 or (
            mask is not None and len(mask.shape) != 2
        ):
            return False
        # One row for the whole batch.
        rows = sequences.shape[0]
        others = states if mask is None else [*states, mask]
        if rows != 1 and any(other.shape[0] == 1 for other in others):
            return False
        # At masked steps Keras' loop on JAX outputs the state that it takes
        # for the last h of stacked cells.
        return (
            mask is None
            or keras.backend.backend() != "jax"
            or not isinstance(self.cell, keras.layers.StackedRNNCells)
            or all(type(c) is keras.layers.LSTMCell for c in self.cell.cells)
        )


def _weights(cell: Any) -> dict[str, Any]:
    """The weights of Keras' cell by the op's names.

    The op's update gate is 1 - z for Keras' z, so that signs change.
    """
    names = ["kernel", "recurrent_kernel"] + ["bias"] * cell.use_bias
    weights = {
        name: keras.ops.convert_to_tensor(getattr(cell, name)) for name in names
    }
    if isinstance(cell, keras.layers.LSTMCell):
        return weights
    signs = np.repeat([-1.0, 1.0, 1.0], cell.units)
    signs = keras.ops.convert_to_tensor(signs, cell.compute_dtype)
    weights = {name: weight * signs for name, weight in weights.items()}
    if cell.use_bias:
        bias = weights["bias"]
        weights |= {"bias": bias[0], "recurrent_bias": bias[1]}
    return weights


@keras.saving.register_keras_serializable(package="keras_ln")
class FastLSTM(FastLayer, keras.layers.LSTM):
    """`keras.layers.LSTM`, computed by this package if that is faster."""

    # Why LiteRT's op would be wrong, or "".
    against_litert = ""

    def inner_loop(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: Any = False,
    ) -> Any:
        """As of FastLayer, or LiteRT's op if a file for it is written."""
        notes = engine.fused_lstms()
        if notes is None:
            return super().inner_loop(sequences, initial_state, mask, training)
        reason = self._reason_against_litert(sequences, initial_state, mask)
        notes[self.name] = reason
        if reason:
            return super().inner_loop(sequences, initial_state, mask, training)
        if self.go_backwards:
            sequences = keras.ops.flip(sequences, axis=1)
        cell = self.cell
        bias = cell.bias
        if bias is None:
            bias = keras.ops.zeros((4 * cell.units,))
        last_output, outputs = engine.litert.lstm(
            sequences, cell.kernel, cell.recurrent_kernel, bias
        )
        # The states have no use, or the converter would not know the op.
        return last_output, outputs, initial_state

    def _reason_against_litert(
        self, sequences: Any, states: list[Any], mask: Any
    ) -> str:
        """Why LiteRT's op does not compute it, or ""."""
        if self.against_litert:
            return self.against_litert
        if engine.litert is None:
            return "LiteRT's op is written on TensorFlow."
        if mask is not None:
            return "It has a mask."
        if self.return_state or self.stateful:
            return "Its states are used outside of it."
        if None in sequences.shape[:2]:
            return "The batch size or the number of steps is unknown."
        if not all(map(engine.litert.are_zeros, states)):
            return "It begins with given states."
        if self.compute_dtype != "float32":
            return f"It computes in {self.compute_dtype}."
        return ""


@keras.saving.register_keras_serializable(package="keras_ln")
class FastGRU(FastLayer, keras.layers.GRU):
    """`keras.layers.GRU`, computed by this package if that is faster."""


@keras.saving.register_keras_serializable(package="keras_ln")
class FastRNN(FastLayer):
    """`keras.layers.RNN` of one or more of Keras' cells, likewise."""
