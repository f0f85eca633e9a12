"""The constructor arguments of layers: accepted and refused ones."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from keras_ln.engine import arguments

# The names that TensorFlow-Addons has for arguments of our layers.
TFA_NAMES = {
    "norm_epsilon": "epsilon",
    "norm_gamma_initializer": "gamma_initializer",
    "norm_beta_initializer": "beta_initializer",
    "layernorm_epsilon": "epsilon",
}
REFUSED = {
    "cell_zoneout": "it has no state c",
    "data_init": "`initialize_from_data` is called with the data",
    "projection": "LNLSTM and WNLSTM have it",
    "reset_after": "it has no reset gate",
    "rms_scaling": "keras.layers.RMSNormalization does that",
    "time_major": "inputs are (batch, time, features)",
}


def argument_names(layer_class: Any) -> list[str]:
    """The names that the constructor of a class takes."""
    # From `__init__`: the `__new__` of Keras' layers takes anything.
    return [*inspect.signature(layer_class.__init__).parameters][1:]


def named_arguments(scope: dict[str, Any]) -> dict[str, Any]:
    """The named arguments of an `__init__` from its `locals()`."""
    others = ("self", "kwargs", "__class__")
    return {name: scope[name] for name in scope if name not in others}


def without(kwargs: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """`kwargs` without the arguments that ask for these `values`."""
    return {
        name: value
        for name, value in kwargs.items()
        if name not in values or value != values[name]
    }


def of_keras(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` without the arguments of Keras' RNN layers that we ignore."""
    kwargs = without(kwargs, time_major=False)
    kwargs.pop("implementation", None)
    return kwargs


def refuse(layer_class: type, names: Iterable[str]) -> None:
    """`ValueError` for arguments of other libraries, and for misspelled ones.

    Keras checks all other names: it accepts more than a signature shows.
    """
    owner = layer_class.__name__
    known = {
        name
        for base in layer_class.__mro__[:-1]
        if "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    } - {"self", "args", "kwargs"}
    for name in names:
        if name in TFA_NAMES:
            raise ValueError(
                f"{owner} does not take the argument `{name}` of "
                f"TensorFlow-Addons. Use `{TFA_NAMES[name]}`, or see "
                "keras_ln.compat, which turns the whole config of such a cell "
                "into our arguments."
            )
        if name in REFUSED:
            raise ValueError(
                f"{owner} does not take the argument `{name}`: "
                f"{REFUSED[name]}. Leave it out."
            )
        if name not in known and (hint := arguments.nearest(name, known)):
            raise ValueError(f"{owner} has no argument `{name}`.{hint}")
