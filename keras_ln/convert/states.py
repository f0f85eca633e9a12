"""Models that take a sequence in pieces, with their states as arguments."""

import contextlib
import math
from typing import Any

import keras
import numpy as np

from keras_ln._keras import (
    input_layer,
    is_graph,
    layers_within,
    layout,
    mask_of,
    set_mask,
    share_layer,
    through_graph,
)
from keras_ln.engine import arguments
from keras_ln.layers import (
    BatchNormalization,
    LayerNormalization,
    LNGRUCell,
    LNLSTMCell,
    LNSimpleRNNCell,
    RecurrentBatchNorm,
    WeightNormDense,
    WNLSTMCell,
)
from keras_ln.layers.configs import config_of, from_config
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.rnn.bn_lstm import BNLSTM
from keras_ln.layers.rnn.fast import FastGRU, FastLSTM, FastRNN, cells_of

_RECURRENT = (
    *(keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN),
    *(keras.layers.RNN, FastLSTM, FastGRU, FastRNN),
)
_CELLS = (
    keras.layers.LSTMCell,
    keras.layers.GRUCell,
    keras.layers.SimpleRNNCell,
    *(LNLSTMCell, LNGRUCell, LNSimpleRNNCell, WNLSTMCell),
)
# Each step of their output depends on that step of their input alone, unless
# an axis is that of time. Not all are in Keras 3.8.
_STEPWISE = {
    *(LayerNormalization, BatchNormalization, WeightNormDense),
    *(
        getattr(keras.layers, name, None)
        for name in (
            *("Activation", "ActivityRegularization", "Add", "AlphaDropout"),
            *("Average", "BatchNormalization", "Concatenate", "Dense"),
            *("Dropout", "ELU", "EinsumDense", "Embedding", "GaussianDropout"),
            *("GaussianNoise", "Identity", "LayerNormalization", "LeakyReLU"),
            *("Masking", "Maximum", "Minimum", "Multiply", "Normalization"),
            *("RMSNormalization", "ReLU", "Rescaling", "Softmax"),
            *("SpatialDropout1D", "Subtract", "TimeDistributed"),
            "UnitNormalization",
        )
    ),
}
# Operations of keras.ops by their classes, those of masks among them.
_OPERATIONS = {
    *("Abs", "Absolute", "Add", "Any", "Cast", "Divide", "Elu", "Equal"),
    *("Exp", "Gelu", "Log", "Log1p", "LogicalAnd", "LogicalNot", "LogicalOr"),
    *("Maximum", "Minimum", "Multiply", "Negative", "NotEqual", "Power"),
    *("Relu", "Sigmoid", "Silu", "Softplus", "Sqrt", "Square", "Subtract"),
    *("Tanh", "TrueDivide"),
}
# A file of one step then has no loop. On torch it has none anyway, and Keras
# computes unrolled steps less exactly.
_UNROLLS = keras.backend.backend() != "torch"
# How far float rounding may move the numbers that are compared.
_ROUNDING = {"float64": 1e-6, "float32": 1e-3}


def with_states(model: Any, steps: int = 1) -> Any:
    """A model that takes `steps` steps in a call, and its states as inputs.

    A functional model with the weights of `model` itself. Its inputs are a
    list: those of `model`, with `steps` steps, then for each recurrent layer
    `<layer>_h` and, for LSTMs, `<layer>_c`, of shape (B, U). Its outputs are a
    list: those of `model`, then the new states in the same order, from layers
    called `new_<layer>_h` and `new_<layer>_c`. States of zeros begin a
    sequence. T / `steps` calls, each with the states that the last one
    returned, compute what `model` computes in one call with T steps, at
    inference.

    A last layer with `return_sequences=False` gives its output after each
    call. States of `stateful=True` layers become inputs. Masks of Masking and
    Embedding layers, and inputs for `mask` and `reset`, hold for the steps of
    a call.

    Args:
        model: a functional or Sequential model, built, of LNLSTM, LNGRU,
            LNSimpleRNN, WNLSTM, Keras' LSTM, GRU and SimpleRNN, RNN of such
            cells, Dense, Embedding, and layers that normalise, activate,
            merge or drop features of a step; any other layer that acts on
            single steps may be in TimeDistributed.
        steps: the number of steps of a call. With one step an exported file
            has no loop.

    Returns:
        The new model, not compiled.

    Raises:
        ValueError: with the layer's name and the reason, for layers that mix
            steps or depend on their number (convolution, pooling, attention,
            Flatten, Bidirectional, `go_backwards`, BNLSTM, normalisation over
            time), for classes that are not known, for recurrent layers in
            half precision or called with `initial_state` or `reset_state`,
            and for any layer whose results in pieces differ from those in one
            call; the function compares them on random numbers.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential([
    ...     keras.Input((None, 3)),
    ...     keras_ln.LNLSTM(4, return_sequences=True, name="memory"),
    ... ])
    >>> stream = keras_ln.with_states(model)
    >>> [x.name for x in stream.inputs[1:]]
    ['memory_h', 'memory_c']
    >>> stream.output_names[1:]
    ['new_memory_h', 'new_memory_c']
    """
    steps = arguments.check_positive_integer("steps", steps)
    if not is_graph(model) or not model.built:
        raise ValueError(
            "with_states takes functional and Sequential models that are "
            f"built. Received: {getattr(model, 'name', model)!r} of class "
            f"{type(model).__name__}."
        )
    stream = _Walk(model, steps, replace=True)
    _compare(model, stream, steps)
    outputs = keras.tree.flatten(stream.outputs)
    for state, new in zip(stream.given, stream.new, strict=True):
        named = {"name": f"new_{state.name}", "dtype": state.dtype}
        outputs.append(keras.layers.Identity(**named)(new))
    inputs = [*stream.inputs, *stream.given]
    made = keras.Model(inputs, outputs, name=f"{model.name}_with_states")
    # Keras exports ONNX and OpenVINO only from models that were called.
    made([np.zeros([n or 1 for n in x.shape], x.dtype) for x in inputs])
    return made


class _Walk:
    """The model's operations, called again on inputs with other steps."""

    def __init__(self, model: Any, steps: int, replace: bool) -> None:
        """With `replace`, recurrent layers get their states as arguments."""
        self._steps, self._replace = steps, replace
        # States, and their new values; operations and their results.
        self.given: list[Any] = []
        self.new: list[Any] = []
        self.made: list[tuple[Any, Any]] = []
        self.inputs = [self._input(x) for x in model.inputs]
        self._names = {x.name for x in self.inputs}
        self.outputs = through_graph(model, self.inputs, self._call)

    def _input(self, x):
        layer = input_layer(x)
        if len(x.shape) < 2 or layout(x) is not None:
            raise ValueError(
                "with_states takes dense inputs (batch, time, ...). Received: "
                f"input {layer.name!r} of shape {tuple(x.shape)}"
            )
        shape = (x.shape[0], self._steps, *x.shape[2:])
        config = {**layer.get_config(), "optional": layer.optional}
        return keras.layers.InputLayer(**config | {"batch_shape": shape}).output

    def _call(self, operation, *args, **kwargs):
        if is_graph(operation) and self._replace:
            count = len(self.made)
            made = through_graph(operation, args[0], self._call)
            # Compared is the model inside as a whole.
            del self.made[count:]
            self.made += [(operation, x) for x in keras.tree.flatten(made)]
            return made
        kwargs.pop("training", None)
        is_recurrent = isinstance(operation, keras.layers.RNN)
        if is_recurrent:
            named = zip(("initial_state", "mask"), args[1:], strict=False)
            args, kwargs = args[:1], {**kwargs, **dict(named)}
        reason = _reason(operation, args, kwargs) if self._replace else None
        if reason is not None:
            raise _refusal(operation, reason)
        try:
            if is_recurrent and self._replace:
                made = self._with_states(operation, *args, **kwargs)
            else:
                made = operation(*args, **kwargs)
        # Calls of any layer with other steps than it was built for.
        except (TypeError, ValueError) as error:
            reason = f"it does not take {self._steps} steps. {error}"
            raise _refusal(operation, reason) from error
        self.made += [(operation, x) for x in keras.tree.flatten(made)]
        return made

    def _with_states(self, layer, x, mask=None, **kwargs):
        mask = mask_of(x) if mask is None else mask
        twin, names = self._twin(layer)
        rows, dtype = self.inputs[0].shape[0], layer.compute_dtype
        sizes = keras.tree.flatten(twin.state_size)
        given = [
            keras.Input(batch_shape=(rows, size), dtype=dtype, name=name)
            for size, name in zip(sizes, names, strict=True)
        ]
        packed = keras.tree.pack_sequence_as(twin.state_size, given)
        packed = packed if isinstance(packed, list) else [packed]
        y, *states = twin(x, initial_state=packed, mask=mask, **kwargs)
        new = keras.tree.flatten(states)
        self.given += given
        self.new += new
        repeats = mask is not None and not layer.zero_output_for_mask
        is_last = self._steps == 1 or not layer.return_sequences
        if repeats and is_last and not isinstance(layer, BaseRNN):
            # Keras' loop knows no last output, which is h, where it begins.
            y = new[-len(keras.tree.flatten(cells_of(layer)[-1].state_size))]
            y = keras.ops.expand_dims(y, 1) if layer.return_sequences else y
        if mask is not None and layer.return_sequences:
            set_mask(y, mask)
        return (y, *states) if layer.return_state else y

    def _twin(self, layer):
        """A layer with the same cell, and the names of its states."""
        cells = cells_of(layer)
        sizes = [keras.tree.flatten(cell.state_size) for cell in cells]
        if len(cells) == 1:
            # Without the counter of a cell with zoneout.
            sizes = [keras.tree.flatten(layer.state_size)]
        kinds = [
            f"{k}_{kind}" if len(cells) > 1 else kind
            for k, of_cell in enumerate(sizes)
            for kind, _ in zip("hc", of_cell, strict=False)
        ]
        name = layer.name
        while self._names & {name, *(f"{name}_{kind}" for kind in kinds)}:
            name = f"{name}_again"
        names = [f"{name}_{kind}" for kind in kinds]
        self._names |= {name, *names}
        config = config_of(layer) | {"name": name}
        config |= {"return_state": True, "stateful": False}
        if not isinstance(layer, BaseRNN) and self._steps == 1 and _UNROLLS:
            config["unroll"] = True
        if type(layer) in (keras.layers.RNN, FastRNN):
            return from_config(layer, config, {"cell": layer.cell}), names
        twin = from_config(layer, config)
        share_layer(twin, "cell", layer.cell)
        return twin, names


def _refusal(operation, reason):
    return ValueError(
        f"with_states cannot take {operation.name!r} of class "
        f"{type(operation).__name__}: {reason}"
    )


def _reason(operation, args, kwargs):
    """Why an operation cannot be in pieces, or None."""
    kind = type(operation)
    if isinstance(operation, keras.layers.Bidirectional):
        return "it reads sequences from their end too."
    if isinstance(operation, BNLSTM | RecurrentBatchNorm):
        return "its statistics depend on the number of the step."
    if isinstance(operation, keras.layers.RNN):
        return _reason_of_recurrent(operation, kwargs)
    is_layer = isinstance(operation, keras.layers.Layer)
    known = kind in _STEPWISE if is_layer else kind.__name__ in _OPERATIONS
    if not known:
        return (
            "it may mix steps. If it computes each step by itself, put a "
            "layer into keras.layers.TimeDistributed."
        )
    rank = max(
        len(x.shape)
        for x in keras.tree.flatten((args, kwargs))
        if isinstance(x, keras.KerasTensor)
    )
    axes = keras.tree.flatten(getattr(operation, "axis", None))
    if rank > 2 and any(a is not None and a % rank == 1 for a in axes):
        return "its axis is that of the steps."
    return None


def _reason_of_recurrent(layer, kwargs):
    if not isinstance(layer, BaseRNN) and type(layer) not in _RECURRENT:
        return "the equations of derived classes are not known."
    if layer.go_backwards:
        return "it reads sequences from their end (go_backwards=True)."
    for name in ("initial_state", "reset_state"):
        if kwargs.get(name) is not None:
            return f"it is called with `{name}`, and streams begin with zeros."
    for part in (layer, *cells_of(layer)):
        if part.compute_dtype not in _ROUNDING:
            return (
                f"it computes in {part.compute_dtype}, and states between "
                "calls would be rounded. Build the model in float32."
            )
    for cell in () if isinstance(layer, BaseRNN) else cells_of(layer):
        if type(cell) not in _CELLS or getattr(cell, "has_zoneout", False):
            return (
                f"the states of the {type(cell).__name__} in it are not known, "
                "or count steps. Use the layer of this cell instead of RNN."
            )
    return None


def _compare(model: Any, stream: _Walk, steps: int) -> None:
    """`ValueError` with the first operation that pieces change."""
    calls = max(2, math.ceil(3 / steps))
    whole = _Walk(model, calls * steps, replace=False)
    x = _numbers(model, whole.inputs, steps)
    found = []
    states = [np.zeros((len(x[0]), s.shape[1]), s.dtype) for s in stream.given]
    made = [y for _, y in stream.made]
    program = keras.Model([*stream.inputs, *stream.given], [*made, *stream.new])
    for k in range(calls):
        piece = [a[:, k * steps : (k + 1) * steps] for a in x]
        ran = _run(program, [*piece, *states])
        found.append(ran[: len(made)])
        states = ran[len(made) :]
    with _from_zeros(model):
        program = keras.Model(whole.inputs, [y for _, y in whole.made])
        expected = _run(program, x)
    for (operation, _), one, *pieces in zip(
        whole.made, expected, *found, strict=True
    ):
        ours = pieces[-1]
        if ours.shape != one.shape:
            ours = np.concatenate(pieces, axis=1)
        rounding = _ROUNDING.get(str(one.dtype), 3e-2)
        exact, ours = (np.asarray(a, "float64") for a in (one, ours))
        bound = rounding * max(1.0, np.abs(exact).max())
        if ours.shape != exact.shape or not np.allclose(
            ours, exact, rtol=0, atol=bound
        ):
            raise _refusal(
                operation, "its results in pieces differ from those in one."
            )


def _run(program, arrays):
    made = program(arrays, training=False)
    return [keras.ops.convert_to_numpy(y) for y in keras.tree.flatten(made)]


def _numbers(model, inputs, masked):
    """Random inputs; where the model masks numbers, a step is masked."""
    rng = np.random.default_rng(0)
    parts = layers_within(model)
    words = [p.input_dim for p in parts if hasattr(p, "input_dim")]
    arrays = []
    for x in inputs:
        shape = [size or 3 for size in x.shape]
        array: Any
        if "float" in x.dtype and len(shape) > 2:
            array = rng.normal(size=shape)
            for layer in parts:
                if isinstance(layer, keras.layers.Masking):
                    array[0, masked] = layer.mask_value
        else:
            array = rng.integers(0, min([2, *words]), shape)
            array[0, masked] = 0
        arrays.append(array.astype(x.dtype))
    return arrays


@contextlib.contextmanager
def _from_zeros(model):
    """States of zeros in layers that keep them, and the old ones after it."""
    kept = [
        (layer, state, keras.ops.convert_to_numpy(state))
        for layer in layers_within(model)
        if isinstance(layer, keras.layers.RNN) and layer.stateful
        for state in keras.tree.flatten(layer.states)
    ]
    try:
        for layer, _, _ in kept:
            layer.reset_state()
        yield
    finally:
        for _, state, value in kept:
            state.assign(value)
