"""The constructor arguments of layers: checked, kept, serialised."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from keras_ln.layers.refused_arguments import without
from keras_ln.ops import arguments
from keras_ln.ops.normalization.sites import check_groups

_KERAS_OBJECTS = {
    "activation": keras.activations,
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "units": partial(arguments.check_positive_integer, "units"),
    "axis": arguments.check_axis_type,
    "epsilon": arguments.check_epsilon,
    "dropout": partial(arguments.check_rate, "dropout"),
    "recurrent_dropout": partial(arguments.check_rate, "recurrent_dropout"),
    "zoneout": partial(arguments.check_rate, "zoneout"),
    "cell_zoneout": partial(arguments.check_rate, "cell_zoneout"),
    "reset_after": lambda value: _check_reset_after(value),
    "max_steps": lambda value: (
        None
        if value is None
        else arguments.check_positive_integer("max_steps", value)
    ),
    "momentum": partial(arguments.check_fraction, "momentum"),
    "groups": check_groups,
}


def argument_names(layer_class: Any) -> list[str]:
    """The names that the constructor of a class takes."""
    # Of `__init__`: the `__new__` of Keras' layers takes anything.
    return [*inspect.signature(layer_class.__init__).parameters][1:]


def named_arguments(scope: dict[str, Any]) -> dict[str, Any]:
    """The named arguments of an `__init__` from its `locals()`."""
    others = ("self", "kwargs", "__class__")
    return {name: scope[name] for name in scope if name not in others}


def accept(name: str, value: Any) -> Any:
    """The argument as a layer keeps it: checked, identifiers resolved."""
    kind = name.rpartition("_")[2]
    if kind in _KERAS_OBJECTS:
        return _KERAS_OBJECTS[kind].get(value)
    return _CHECKS[name](value) if name in _CHECKS else value


def serialize(name: str, value: Any) -> Any:
    """The argument as `get_config` gives it."""
    kind = name.rpartition("_")[2]
    if kind in _KERAS_OBJECTS:
        return _KERAS_OBJECTS[kind].serialize(value)
    return value


def of_keras(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` without what Keras' recurrent layers take and ours ignore."""
    kwargs = without(kwargs, time_major=False)
    kwargs.pop("implementation", None)
    return kwargs


def check_sites(normalize: Any, sites: tuple[str, ...]) -> tuple[str, ...]:
    """`normalize` in the order of `sites`; `ValueError` for other names."""
    if not isinstance(normalize, list | tuple) or not set(normalize) <= set(
        sites
    ):
        raise ValueError(
            f"Argument `normalize` must be a tuple of any of {sites}. "
            f"Received: normalize={normalize!r}"
        )
    if "sum" in normalize and {"kernel", "recurrent"} & set(normalize):
        raise ValueError(
            'Argument `normalize` must have "sum" in place of "kernel" and '
            f'"recurrent". Received: normalize={normalize!r}'
        )
    return tuple(site for site in sites if site in normalize)


def _check_reset_after(reset_after: Any) -> bool:
    if reset_after is not True:
        raise ValueError(
            "Argument `reset_after` must be True: the layer normalises the "
            "recurrent product, and its reset gate multiplies that product, as "
            f"Keras' GRU does by default. Received: reset_after={reset_after!r}"
        )
    return True
