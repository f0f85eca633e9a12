"""Models whose LSTM and GRU layers this package computes, and the way back."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_ln import engine
from keras_ln._keras import calls_of, is_graph, layers_within
from keras_ln.convert.clone import Clone
from keras_ln.convert.weights import constraint_on_signs, is_mirrored
from keras_ln.engine import arguments
from keras_ln.layers.configs import cloning, config_of
from keras_ln.layers.constructor_arguments import argument_names
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.rnn.fast import (
    KERAS,
    FastGRU,
    FastLayer,
    FastLSTM,
    FastRNN,
    implementation_of,
    reason_for_keras,
)
from keras_ln.layers.rnn.ln_gru import LNGRU, LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTM, LNLSTMCell
from keras_ln.ops.argument_table import accept, serialize
from keras_ln.ops.symbolic import FunctionCall

_FAST: dict[Any, Any] = {
    keras.layers.LSTM: FastLSTM,
    keras.layers.GRU: FastGRU,
    keras.layers.RNN: FastRNN,
}


_KERAS: dict[Any, Any] = {
    **{kind: kind for kind in (keras.layers.LSTM, keras.layers.GRU)},
    **{kind: kind for kind in (keras.layers.LSTMCell, keras.layers.GRUCell)},
    FastLSTM: keras.layers.LSTM,
    FastGRU: keras.layers.GRU,
    LNLSTM: keras.layers.LSTM,
    LNLSTMCell: keras.layers.LSTMCell,
    LNGRU: keras.layers.GRU,
    LNGRUCell: keras.layers.GRUCell,
}
# Arguments of ours that change nothing without a norm.
_OF_NORMS = {
    *("normalize", "center", "groups", "epsilon", "use_fused"),
    *("gamma_initializer", "gamma_regularizer", "gamma_constraint"),
    *("beta_initializer", "beta_regularizer", "beta_constraint"),
}
ADVICE = (
    " Load a file with keras.models.load_model first, and put a layer into "
    "keras.Sequential([keras.Input(...), layer])."
)


class RNNRow(NamedTuple):
    """A recurrent layer of a model, and its implementations.

    `training` and `prediction` are names of `keras_ln.ops.implementation`, or
    "keras" for Keras' loop; `reason` is why the CPU extension does not run the
    layer, or "".
    """

    layer: str
    class_name: str
    training: str
    prediction: str
    reason: str


def with_fast_rnn(model: Any, verbose: bool = False) -> Any:
    """A clone that predicts and learns the same, with faster LSTMs and GRUs.

    `keras.layers.LSTM`, `GRU`, and `RNN` of their cells or of
    StackedRNNCells, run on a CPU by the implementations of `LNLSTM` and
    `LNGRU`, without their normalisation; in Bidirectional, TimeDistributed
    and models inside the model too. Weights and states are copied, and have
    the order and shapes of Keras': `set_weights(model.get_weights())` works
    both ways. The layers derive from Keras' and have its arguments. The model
    itself does not change.

    The clone chooses an implementation at each call, for the machine that it
    runs on. Keras' own loop runs on other devices than CPUs, in files of
    `model.export`, and without the CPU extension if it is faster. These layers
    stay Keras' own in the clone: SimpleRNN, GRU with `reset_after=False`,
    activations that are not tanh and sigmoid, `recurrent_dropout`,
    `unroll=True`, `use_cudnn=True`, half precision, derived classes, and layers
    inside a layer of another class. `rnn_summary` names the implementation of
    each layer.

    Args:
        model: a functional or Sequential model, built.
        verbose: print `rnn_summary` of the clone.

    Returns:
        The new model. It is not compiled, whether the model is or not: call
        `compile` before `fit`. A program that loads it from a file imports
        `keras_ln` first; `to_keras` makes a model that needs no `keras_ln`.

    Raises:
        ValueError: if `model` is not functional or Sequential, or has no
            weights yet; for a layer that cannot be cloned, or that is inside
            a Bidirectional layer or a layer of your own and is used elsewhere
            too.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential(
    ...     [keras.Input((None, 3)), keras.layers.LSTM(4, name="memory")]
    ... )
    >>> fast = keras_ln.with_fast_rnn(model)
    >>> fast.compile("adam", "mse")
    >>> isinstance(fast.get_layer("memory"), keras.layers.LSTM)
    True
    """
    verbose = arguments.check_flag("verbose", verbose)
    clone = Fast().run(model, ADVICE)
    if not any(isinstance(part, FastLayer) for part in layers_within(clone)):
        warnings.warn(
            "with_fast_rnn found no layer that it can make faster in "
            f"{model.name!r}: the clone has the same layers. "
            "keras_ln.rnn_summary(model) says why.",
            stacklevel=2,
        )
    if verbose:
        rnn_summary(clone, print_fn=print)
    return clone


def to_keras(model: Any) -> Any:
    """A clone with Keras' own layers, for programs without `keras_ln`.

    The way back from `with_fast_rnn`, bit for bit. `LNLSTM` and `LNGRU` with
    `normalize=()` become `LSTM` and `GRU`, their cells Keras' cells, with the
    weights; with `recurrent_dropout` Keras' layers drop other entries for
    each gate, and a constraint on the bias of `LNGRU` meets two rows.
    Initializers of this package become "zeros": the weights are there. Behind a
    mask, outputs before the first valid step are as Keras' layer gives them.
    The model itself does not change.

    Args:
        model: a functional or Sequential model, built.

    Returns:
        The new model. It is not compiled, whether the model is or not: call
        `compile` before `fit`.

    Raises:
        ValueError: for layers that Keras does not have, by name: normalised
            ones, with zoneout, called with `reset`, and all others of
            `keras_ln`; and as `with_fast_rnn`.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4)])
    >>> fast = keras_ln.with_fast_rnn(model)
    >>> back = keras_ln.to_keras(fast)
    >>> back.compile("adam", "mse")
    >>> type(back.layers[0]).__module__.startswith("keras.")
    True
    """
    return ToKeras().run(model, ADVICE)


def rnn_summary(
    model: Any, print_fn: Callable[[str], Any] | None = None
) -> list[RNNRow]:
    """The implementation of each recurrent layer here and now, and why.

    Args:
        model: a model or a layer.
        print_fn: a function that gets a line for each layer, such as `print`;
            None for none.

    Returns:
        A row for each recurrent layer, in the order of the model, with the
        fields `layer`, `class_name`, `training`, `prediction` and `reason`.
        `ops.implementation` describes "native", "cuda", "fused" and "loop";
        "keras" is Keras' loop.

    Raises:
        ValueError: if `model` is not a model or a layer.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential(
    ...     [keras.Input((3, 2)), keras.layers.SimpleRNN(4, name="simple")]
    ... )
    >>> for row in keras_ln.rnn_summary(model):
    ...     print(row.layer, row.training, row.reason)
    simple keras Cells of class SimpleRNNCell are not supported.
    """
    if not isinstance(model, keras.layers.Layer):
        raise arguments.wrong("model", "a model or layer of Keras 3", model)
    found = [
        _row(part)
        for part in layers_within(model)
        if isinstance(part, keras.layers.RNN)
    ]
    if print_fn is not None:
        for row in found:
            print_fn(
                f"{row.layer} ({row.class_name}): {row.training} in training, "
                f"{row.prediction} in prediction. {row.reason}".rstrip()
            )
    return found


def _row(layer):
    kind = type(layer).__name__
    if isinstance(layer, BaseRNN):
        name, reasons = engine.implementation(layer)
        return RNNRow(layer.name, kind, name, name, reasons.get("native", ""))
    if not isinstance(layer, FastLayer):
        reason = reason_for_keras(layer)
        if reason is None and type(layer) not in _FAST:
            reason = f"The equations of the class {kind} are not known."
        if reason is None:
            reason = (
                "It is Keras' layer: with_fast_rnn replaces it, unless a layer "
                "of another class holds it."
            )
        return RNNRow(layer.name, kind, KERAS, KERAS, reason)
    (fit, why), (predict, reason) = (
        implementation_of(layer, t) for t in (True, False)
    )
    return RNNRow(layer.name, kind, fit, predict, why or reason)


class Fast(Clone):
    """A clone with fast layers."""

    function = "with_fast_rnn"
    around_cells = (keras.layers.RNN, FastRNN)

    def replaces(self, layer: Any) -> bool:
        """Whether it is a layer that an op can compute."""
        return type(layer) in _FAST and reason_for_keras(layer) is None

    def replacement(self, layer: Any) -> Any:
        """The layer with the other loop."""
        config, fast = config_of(layer), _FAST[type(layer)]
        return cloning(layer, lambda: fast.from_config(config))

    def class_around(self, layer: Any) -> Any:
        """RNN of cells that an op can compute, too."""
        return _FAST[keras.layers.RNN] if self.replaces(layer) else type(layer)


class ToKeras(Clone):
    """A clone with Keras' own layers."""

    function = "to_keras"
    around_cells = (keras.layers.RNN, FastRNN)

    def run(self, model: Any, advice: str, copy_weights: bool = True) -> Any:
        """The clone; `ValueError` if Keras does not have a layer."""
        for part in layers_within(model) if is_graph(model) else ():
            _check_plain(part)
        return super().run(model, advice, copy_weights)

    def replaces(self, layer: Any) -> bool:
        """Whether it is recurrent, of Keras or of this package."""
        return type(layer) in _KERAS

    def replacement(self, layer: Any) -> Any:
        """Keras' layer or cell with those arguments that it has."""
        kind, config = _KERAS[type(layer)], config_of(layer)
        if isinstance(layer, BaseRNN | BaseCell):
            for name in _more(layer):
                config.pop(name, None)
            for name in "activation", "recurrent_activation":
                config[name] = getattr(layer, name)
        for name, value in config.items():
            if isinstance(value, dict) and _is_ours(
                value.get("registered_name") or "", ">"
            ):
                # An initializer: all weights are copied.
                config[name] = "zeros"
        return cloning(layer, lambda: kind.from_config(config))

    def class_around(self, layer: Any) -> Any:
        """Keras' own RNN."""
        return keras.layers.RNN

    def check_other(self, layer: Any) -> None:
        """`ValueError` for a layer that holds layers of this package."""
        parts = layers_within(layer)
        ours = [p for p in parts if _is_ours(type(p).__module__, ".")]
        self.check_inside(layer, ours)


def _check_plain(layer):
    """`ValueError` unless Keras has such a layer."""
    # A Sequential model has only layers.
    for operation in getattr(layer, "operations", ()):
        if isinstance(operation, FunctionCall):
            raise ValueError(
                "to_keras cannot replace calls of functions of keras_ln.ops. "
                f"Received: {layer.name!r} with {operation.name!r} inside."
            )
    if not any(_is_ours(k.__module__, ".") for k in type(layer).__mro__):
        return
    if (reason := reason_without_twin(layer)) is not None:
        raise ValueError(
            f"to_keras cannot replace {layer.name!r} of class "
            f"{type(layer).__name__}: {reason}"
        )


def _more(layer):
    """The arguments of a layer or cell that Keras' has not, by name."""
    theirs = argument_names(_KERAS[type(layer)])
    ours = inspect.signature(type(layer).__init__).parameters
    return {
        name: parameter
        for name, parameter in ours.items()
        if name not in ("self", "kwargs", *theirs)
    }


def reason_without_twin(layer):
    """Why Keras has no layer like this one, or None."""
    if type(layer) not in {*_KERAS, FastRNN}:
        return "Keras has no such layer."
    if not isinstance(layer, BaseRNN | BaseCell):
        return None
    cell: Any = getattr(layer, "cell", layer)
    if cell.normalize:
        return (
            f"it has normalize={cell.normalize!r}. Only layers with "
            "normalize=() have a twin in Keras."
        )
    for name, parameter in _more(layer).items():
        value = getattr(layer, name)
        default = serialize(name, accept(name, parameter.default))
        if name not in _OF_NORMS and serialize(name, value) != default:
            twin = _KERAS[type(layer)].__name__
            return f"it has {name}={value!r}. Keras' {twin} has no `{name}`."
    if isinstance(cell, LNGRUCell):
        sign = "its update gate would change its sign, which needs "
        if not is_mirrored(cell.recurrent_activation):
            return f"{sign}f(-z) = 1 - f(z) for the recurrent_activation."
        if (found := constraint_on_signs(cell)) is not None:
            return f"{sign}f(-w) = -f(w) for the {found}."
        for name in ("trainable", "regularizer", "constraint"):
            both = (getattr(cell, bias) for bias in ("bias", "recurrent_bias"))
            ours = [getattr(bias, name, None) for bias in both]
            if ours[0] is not ours[1]:
                return (
                    "its `bias` and `recurrent_bias` become one weight, and "
                    f"differ in `{name}`: {ours!r}. Set the same on both."
                )
    for given, named in calls_of(layer):
        if named.get("reset") is not None or any(
            x is not None for x in given[4:]
        ):
            return "it is called with `reset`. Keras' layers have no `reset`."
    return None


def _is_ours(name, separator):
    return name.split(separator)[0] == "keras_ln"
