"""Layers whose arguments a hyperparameter search chooses.

The functions take the `hp` that a search passes to a model-building function:
the `HyperParameters` of KerasTuner, or a trial of Optuna.

    def build_model(hp):
        inputs = keras.Input((None, 8))
        x = choose_recurrent(hp, (32, 64))(inputs)
        x = keras.layers.Dense(100)(x)
        x = choose_normalization(hp)(x)
        ...

Names and values are the same with both. The functions call `Choice` and
`conditional_scope` of `HyperParameters`, or `suggest_categorical` of a trial;
this module does not import KerasTuner or Optuna.
"""

import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras

from keras_ln.engine import arguments
from keras_ln.layers.normalization.batch_normalization import BatchNormalization
from keras_ln.layers.normalization.layer_normalization import LayerNormalization
from keras_ln.layers.rnn.bn_lstm import BNLSTM
from keras_ln.layers.rnn.forget_bias import LogUniformForgetBias
from keras_ln.layers.rnn.ln_gru import LNGRU
from keras_ln.layers.rnn.ln_lstm import LNLSTM
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNN
from keras_ln.layers.rnn.wn_lstm import WNLSTM

# The kinds without a gain whose initial value can be chosen.
_WITHOUT_GAIN = ("none", "weight")

_NORMALIZATIONS: dict[str, Callable[..., Any]] = {
    "none": keras.layers.Identity,
    "layer": LayerNormalization,
    "batch": BatchNormalization,
}
_RECURRENT: dict[str, dict[str, Callable[..., Any]]] = {
    "lstm": {
        "none": lambda units, **kw: LNLSTM(units, normalize=(), **kw),
        "layer": LNLSTM,
        "gate": lambda units, **kw: LNLSTM(units, groups="gate", **kw),
        "batch": BNLSTM,
        "weight": WNLSTM,
    },
    "gru": {
        "none": lambda units, **kw: LNGRU(units, normalize=(), **kw),
        "layer": LNGRU,
        "gate": lambda units, **kw: LNGRU(units, groups="gate", **kw),
    },
    "rnn": {"none": keras.layers.SimpleRNN, "layer": LNSimpleRNN},
}


def choose_kind(
    hp: Any,
    kinds: Sequence[str],
    gains: Sequence[float] = (0.1, 1.0),
    name: str = "norm",
    without_gain: Sequence[str] = _WITHOUT_GAIN,
) -> tuple[str, float | None]:
    """A kind of normalisation, and the initial value of its gain.

    The gain is a separate choice, which depends on the kind: the search does
    not vary it for kinds without a gain.

    Args:
        hp: `HyperParameters` of KerasTuner, or a trial of Optuna.
        kinds: the kinds to choose from; the first is the default.
        gains: the initial gains to choose from; the first is the default.
        name: the name of the choice; the gain's has "_gain" added.
        without_gain: the kinds without a gain to choose.

    Returns:
        The kind, and the gain or None.

    Raises:
        TypeError: for another `hp`.
        ValueError: for no kinds, for no gains, and for a generator of kinds or
            gains, which only the first model could read.

    >>> import contextlib
    >>> class First:  # In place of a search: takes every first choice.
    ...     def Choice(self, name, values, default):
    ...         return default
    ...     def conditional_scope(self, name, values):
    ...         return contextlib.nullcontext()
    >>> choose_kind(First(), ("layer", "batch"))
    ('layer', 0.1)
    >>> choose_kind(First(), ("none", "layer"))
    ('none', None)
    >>> class Trial:  # In place of Optuna's: takes every last choice.
    ...     def suggest_categorical(self, name, choices):
    ...         return choices[-1]
    >>> choose_kind(Trial(), ("layer", "batch"))
    ('batch', 1.0)
    """
    kinds, gains = _listed("kinds", kinds), _listed("gains", gains)
    without_gain = _listed("without_gain", without_gain, least=0)
    kind = _choose(hp, name, kinds)
    with_gain = [kind for kind in kinds if kind not in without_gain]
    gain = None
    if hasattr(hp, "conditional_scope") and with_gain:
        # KerasTuner asks for every choice, in any model.
        with hp.conditional_scope(name, with_gain):
            gain = _choose(hp, f"{name}_gain", gains)
    elif kind in with_gain:
        gain = _choose(hp, f"{name}_gain", gains)
    return kind, None if kind in without_gain else gain


def choose_normalization(
    hp: Any,
    kinds: Sequence[str] = ("none", "layer", "batch"),
    gains: Sequence[float] = (0.1, 1.0),
    name: str = "norm",
    **kwargs: Any,
) -> keras.layers.Layer:
    """A normalisation layer, or one that does nothing.

    Args:
        hp: `HyperParameters` of KerasTuner, or a trial of Optuna.
        kinds: any of "none" (`keras.layers.Identity`), "layer"
            (`LayerNormalization`) and "batch" (`BatchNormalization`).
        gains: initial values of gamma to choose from.
        name: the name of the choice. Layers that share it share the choice.
        **kwargs: arguments of the normalisation layer, such as `epsilon`, but
            not `gamma_initializer`.

    Returns:
        The layer.

    Raises:
        TypeError: for another `hp`.
        ValueError: for a kind that does not exist, or `gamma_initializer`.
    """
    _check_kinds(kinds, _NORMALIZATIONS)
    _check_free(kwargs, "gamma_initializer", "gains")
    kind, gain = choose_kind(hp, kinds, gains, name)
    if kind == "none":
        return keras.layers.Identity()
    return _NORMALIZATIONS[kind](**_initial(gain), **kwargs)


def choose_recurrent(
    hp: Any,
    units: int | Sequence[int],
    kinds: Sequence[str] | None = None,
    cell: str = "lstm",
    gains: Sequence[float] = (0.1, 1.0),
    name: str = "recurrent",
    max_steps: int | None = None,
    forget_steps: int | None = None,
    **kwargs: Any,
) -> keras.layers.Layer:
    """A recurrent layer.

    Args:
        hp: `HyperParameters` of KerasTuner, or a trial of Optuna.
        units: the size, or sizes to choose from, as the choice "<name>_units".
        kinds: the normalisations to choose from. None takes all kinds of the
            cell except "gate", and "batch" only with `max_steps`.
        cell: "lstm", "gru" or "rnn". The kinds of "lstm" are "none", "layer"
            and "gate" (`LNLSTM`, with `groups="gate"` for "gate"), "batch"
            (`BNLSTM`) and "weight" (`WNLSTM`); of "gru" they are "none",
            "layer" and "gate" (`LNGRU`); of "rnn" they are "none" (Keras'
            `SimpleRNN`) and "layer" (`LNSimpleRNN`).
        gains: initial values of every gamma to choose from.
        name: the first part of the names of the choices, such as "<name>_norm".
            Layers that share it share the choices.
        max_steps: the argument of `BNLSTM`, which needs it if the number of
            steps is unknown; other layers do not get it.
        forget_steps: adds the choice "<name>_forget_steps" between 0, the usual
            initial biases, and this number, a `LogUniformForgetBias` of so many
            steps. Not for the cell "rnn".
        **kwargs: arguments that all kinds take, such as `return_sequences`, but
            not `gamma_initializer`, nor with `forget_steps` `bias_initializer`.

    Returns:
        The layer.

    Raises:
        TypeError: for another `hp`.
        ValueError: for a cell or a kind that does not exist, an argument that
            the search chooses, or `forget_steps` and a cell without gates.
    """
    if not isinstance(cell, str) or cell not in _RECURRENT:
        raise arguments.wrong("cell", f"one of {tuple(_RECURRENT)}", cell)
    known = _RECURRENT[cell]
    if kinds is None:
        # Only building the layer shows whether the number of steps is known.
        without = {"gate"} | ({"batch"} if max_steps is None else set())
        kinds = [kind for kind in known if kind not in without]
    _check_kinds(kinds, known)
    _check_free(kwargs, "gamma_initializer", "gains")
    if forget_steps is not None:
        _check_free(kwargs, "bias_initializer", "forget_steps")
        if not kwargs.get("use_bias", True):
            raise ValueError(
                "Argument `forget_steps` needs use_bias=True. Received: "
                f"use_bias={kwargs['use_bias']!r}"
            )
    kind, gain = choose_kind(hp, kinds, gains, f"{name}_norm")
    if not isinstance(units, numbers.Integral):
        sizes = _listed("units", units)
        units = _choose(hp, f"{name}_units", sizes)
    if kind == "batch":
        kwargs["max_steps"] = max_steps
    if forget_steps is not None:
        kwargs |= _choose_bias(
            hp, f"{name}_forget_steps", cell, units, forget_steps
        )
    return known[kind](units, **_initial(gain), **kwargs)


def _check_free(kwargs: dict[str, Any], name: str, by: str) -> None:
    """`ValueError` for an argument that `by` chooses."""
    if name in kwargs:
        raise ValueError(
            f"Argument `{by}` chooses `{name}`: leave one of them out. "
            f"Received: {name}={kwargs[name]!r}"
        )


def _choose(hp: Any, name: str, values: list[Any]) -> Any:
    if hasattr(hp, "suggest_categorical"):
        return hp.suggest_categorical(name, values)
    if hasattr(hp, "Choice") and hasattr(hp, "conditional_scope"):
        return hp.Choice(name, values, default=values[0])
    raise arguments.wrong(
        "hp", "KerasTuner's HyperParameters or a trial of Optuna", hp, TypeError
    )


def _choose_bias(
    hp: Any, name: str, cell: str, units: Any, steps: int
) -> dict[str, Any]:
    """The arguments of the bias that a search chooses."""
    if cell == "rnn":
        raise arguments.wrong(
            "forget_steps", "None with cell='rnn', which has no gates", steps
        )
    if (
        not isinstance(steps, numbers.Integral)
        or isinstance(steps, bool)
        or steps < 2
    ):
        raise arguments.wrong("forget_steps", "an integer of at least 2", steps)
    if not _choose(hp, name, [0, int(steps)]):
        return {}
    ours = {"lstm": "lstm", "gru": "lngru"}[cell]
    bias = LogUniformForgetBias(units, steps, ours)
    own = {"unit_forget_bias": False} if cell == "lstm" else {"use_bias": True}
    return {"bias_initializer": bias, **own}


def _initial(gain: float | None) -> dict[str, Any]:
    if gain is None:
        return {}
    return {"gamma_initializer": keras.initializers.Constant(gain)}


def _listed(name: str, values: Any, least: int = 1) -> list[Any]:
    # A search builds many models: a generator would be empty in the second.
    several = isinstance(values, Iterable) and not isinstance(
        values, str | Iterator
    )
    listed = list(values) if several else []
    if not several or len(listed) < least:
        raise arguments.wrong(
            name, f"a sequence{' of at least one value' * least}", values
        )
    return listed


def _check_kinds(kinds: Sequence[str], known: dict[str, Any]) -> None:
    kinds = _listed("kinds", kinds)
    # Not as a set: a list, which cannot be hashed, is no kind either.
    if not all(kind in list(known) for kind in kinds):
        raise ValueError(
            f"Argument `kinds` must hold any of {tuple(known)}. Received: "
            f"kinds={kinds!r}"
        )
