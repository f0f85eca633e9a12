"""The library as custom calls of XLA: names, attributes and registration."""

import ctypes
from typing import Any

from keras_ln_kernels.call import ARGUMENTS, GRADIENTS, RESULTS, Call
from keras_ln_kernels.cells import CELLS
from keras_ln_kernels.library import library


def unsupported_reason() -> str | None:
    """None, or why XLA cannot call a library that could be called else."""
    if hasattr(library(), "kln_xla_register"):
        return None
    return (
        "The library was compiled without XLA's header: install jaxlib before "
        "you build it."
    )


def handlers() -> tuple[Any, Any]:
    """Those of the typed foreign function interface, forward and backward."""
    return library().kln_xla_forward, library().kln_xla_backward


def register(api: int, forward: str, backward: str) -> str | None:
    """Makes the handlers known to the XLA with the API at that address.

    For programs that hold an XLA and offer no other way, which is TensorFlow.

    Args:
        api: what its `XLA_FFI_GetApi` returns.
        forward: the target's name in custom calls.
        backward: likewise.

    Returns:
        None, or what is wrong.
    """
    function = library().kln_xla_register
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    function.restype = ctypes.c_char_p
    wrong = function(api, forward.encode(), backward.encode())
    return None if wrong is None else f"{wrong.decode()}."


def attributes(call: Call) -> dict[str, int | float]:
    """Attributes of a custom call: floats are f64, all others are i64."""
    names = GRADIENTS if call.backward else RESULTS
    return {
        "cell": CELLS[call.cell].number,
        "epsilon": float(call.epsilon),
        "zoneout_share": float(call.zoneout_share),
        "cell_zoneout_share": float(call.cell_zoneout_share),
        "go_backwards": int(call.go_backwards),
        "carry_normalized_state": int(call.carry_normalized_state),
        "arguments": _bits(call.arguments, ARGUMENTS),
        "results": _bits(call.results, names),
    }


def _bits(names: tuple[str, ...], known: dict[str, str]) -> int:
    """A bit for each of the names, in the order in which they are known."""
    return sum(1 << place for place, n in enumerate(known) if n in names)
