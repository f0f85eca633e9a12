"""The library as custom calls of XLA: names, attributes and registration."""

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from keras_ln_kernels.call import CELLS, OPTIONS, PLACES, Call
from keras_ln_kernels.gpu_call import GpuCall
from keras_ln_kernels.gpu_plan import FORMATS, Plan
from keras_ln_kernels.gpu_structs import ARRAYS
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
    """The typed foreign function interface's handlers, forward and backward."""
    return library().kln_xla_forward, library().kln_xla_backward


def register(
    api: int, handlers: Mapping[str, Any], platform: str = "Host"
) -> str | None:
    """Makes handlers known to the XLA with the API at that address.

    For programs that hold an XLA and offer no other way, which is TensorFlow.

    Args:
        api: the result of its `XLA_FFI_GetApi`.
        handlers: by the targets' names in custom calls.
        platform: "Host" or "CUDA".

    Returns:
        None, or a sentence that names the fault.
    """
    function = library().kln_xla_register
    text, pointer = ctypes.c_char_p, ctypes.c_void_p
    function.argtypes, function.restype = [pointer, text, text, pointer], text
    for name, handler in handlers.items():
        place = ctypes.cast(handler, pointer)
        wrong = function(api, name.encode(), platform.encode(), place)
        if wrong is not None:
            return f"{wrong.decode()}."
    return None


def gpu_handler() -> Any:
    """The handler of launches on a GPU, of both directions."""
    return library().kln_xla_gpu


def gpu_attributes(call: GpuCall, plan: Plan) -> dict[str, int | float]:
    """Attributes of a launch: floats are f64, all others are i64."""

    def bits(names: Iterable[str]) -> int:
        return sum(1 << ARRAYS.index(name) for name in names)

    return {
        "given": bits(call.arguments),
        "made": bits((*call.results, *plan.workspace(1))),
        "kernel": plan.number,
        "units": plan.units,
        "blocks": plan.blocks,
        "rows": plan.rows,
        "kept": plan.kept,
        "format": FORMATS[plan.format],
        "cluster": int(plan.cluster),
        **{
            name: int(value) if isinstance(value, bool) else value
            for name, value in call.named_options().items()
        },
    }


def attributes(call: Call) -> dict[str, int | float]:
    """Attributes of a custom call: floats are f64, all others are i64."""
    names = (*call.arguments, *call.results)
    return {
        "cell": CELLS[call.cell].number,
        # A bit for each, in the order of the library's slots.
        "arrays": sum(1 << PLACES[name] for name in names),
        **{
            name: int(value) if isinstance(value, bool) else value
            for name, value in zip(OPTIONS, call.options, strict=True)
        },
    }
