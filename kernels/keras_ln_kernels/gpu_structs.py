"""The library's functions and structs for GPUs: src/gpu.h, cuda/sequence.h."""

import ctypes
import functools
from typing import Any

from keras_ln_kernels.library import library

ARRAYS = (
    *("zx", "flags", "initial_h", "initial_c", "reset_h", "reset_c"),
    *("recurrent", "recurrent_gamma", "recurrent_bias"),
    *("state_gamma", "state_beta"),
    *("h", "c", "from_h", "norms", "final_h", "final_c"),
    *("back", "d_h", "d_final_h", "d_final_c"),
    *("d_zx", "d_shown", "d_state_gamma", "d_state_beta"),
    *("d_initial_h", "d_initial_c"),
    *("d_reset_h", "d_reset_c", "exchange", "counters"),
)


class Sequence(ctypes.Structure):
    """src/cuda/sequence.h."""

    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ARRAYS],
        *[(n, ctypes.c_int) for n in ("batch", "steps")],
        *[(n, ctypes.c_int) for n in ("first_row", "go_backwards")],
        ("epsilon", ctypes.c_float),
    ]


class Shape(ctypes.Structure):
    """KlnGpuShape."""

    _fields_ = [
        *[(n, ctypes.c_int32) for n in ("kernel", "units", "blocks", "rows")],
        *[(n, ctypes.c_int32) for n in ("kept", "format", "cluster")],
        *[(n, ctypes.c_int32) for n in ("threads", "shared_bytes")],
        ("box_bytes", ctypes.c_int32),
    ]


class Launch(ctypes.Structure):
    """KlnGpuLaunch."""

    _fields_ = [
        ("shape", Shape),
        *[(n, ctypes.c_int32) for n in ("device", "array", "groups", "code")],
        *[(name, ctypes.c_void_p) for name in ("kernel", "stream")],
        ("sequence", Sequence),
    ]


@functools.cache
def functions() -> Any:
    """The library, its functions for GPUs declared."""
    loaded, text = library(), ctypes.c_char_p
    launch, number = ctypes.POINTER(Launch), ctypes.POINTER(ctypes.c_int32)
    handle = ctypes.POINTER(ctypes.c_void_p)
    for name, result, arguments in (
        ("use_driver", None, [handle]),
        ("shape", None, [ctypes.POINTER(Shape)]),
        ("load", text, [text, text, handle]),
        ("keep", text, [launch]),
        ("groups", text, [launch, number]),
        ("launch", text, [launch]),
    ):
        function = getattr(loaded, f"kln_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded
