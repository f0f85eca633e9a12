"""The shared library: its functions and structs, and whether it can be used.

src/keras_ln_kernels.h says what they mean.
"""

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

from keras_ln_kernels.damage import damage

ABI_VERSION = 6

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_PATH = Path(__file__).with_name(f"libkeras_ln_kernels.{_SUFFIX}")


class Problem(ctypes.Structure):
    """KlnProblem."""

    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("abi_version", "struct_bytes")],
        *[(name, ctypes.c_int32) for name in ("cell", "dtype")],
        ("go_backwards", ctypes.c_int32),
        ("carry_normalized_state", ctypes.c_int32),
        *[(name, ctypes.c_int64) for name in ("batch", "steps")],
        *[(name, ctypes.c_int64) for name in ("features", "units")],
        ("epsilon", ctypes.c_double),
        ("zoneout_share", ctypes.c_double),
        ("cell_zoneout_share", ctypes.c_double),
        ("threads", ctypes.c_int64),
        ("parallel_for", ctypes.c_void_p),
        ("parallel_context", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("input_mask", ctypes.c_void_p),
        ("recurrent_mask", ctypes.c_void_p),
        ("zoneout", ctypes.c_void_p),
        ("cell_zoneout", ctypes.c_void_p),
        ("initial_h", ctypes.c_void_p),
        ("initial_c", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("reset_h", ctypes.c_void_p),
        ("reset_c", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("recurrent_kernel", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("recurrent_bias", ctypes.c_void_p),
        ("kernel_gamma", ctypes.c_void_p),
        ("kernel_beta", ctypes.c_void_p),
        ("recurrent_gamma", ctypes.c_void_p),
        ("recurrent_beta", ctypes.c_void_p),
        ("state_gamma", ctypes.c_void_p),
        ("state_beta", ctypes.c_void_p),
    ]


class Forward(ctypes.Structure):
    """KlnForward."""

    _fields_ = [
        ("outputs", ctypes.c_void_p),
        ("final_h", ctypes.c_void_p),
        ("final_c", ctypes.c_void_p),
        ("residuals", ctypes.c_void_p),
        ("residual_bytes", ctypes.c_int64),
    ]


class Backward(ctypes.Structure):
    """KlnBackward."""

    _fields_ = [
        ("residuals", ctypes.c_void_p),
        ("residual_bytes", ctypes.c_int64),
        ("d_outputs", ctypes.c_void_p),
        ("d_final_h", ctypes.c_void_p),
        ("d_final_c", ctypes.c_void_p),
        ("d_x", ctypes.c_void_p),
        ("d_initial_h", ctypes.c_void_p),
        ("d_initial_c", ctypes.c_void_p),
        ("d_reset_h", ctypes.c_void_p),
        ("d_reset_c", ctypes.c_void_p),
        ("d_kernel", ctypes.c_void_p),
        ("d_recurrent_kernel", ctypes.c_void_p),
        ("d_bias", ctypes.c_void_p),
        ("d_recurrent_bias", ctypes.c_void_p),
        ("d_kernel_gamma", ctypes.c_void_p),
        ("d_kernel_beta", ctypes.c_void_p),
        ("d_recurrent_gamma", ctypes.c_void_p),
        ("d_recurrent_beta", ctypes.c_void_p),
        ("d_state_gamma", ctypes.c_void_p),
        ("d_state_beta", ctypes.c_void_p),
    ]


def unsupported_reason() -> str | None:
    """None, or the sentence that says why there are no kernels here."""
    _, reason = _load()
    return reason


def library() -> Any:
    """The library, loaded.

    Raises:
        RuntimeError: with the reason, where it cannot be used.
    """
    loaded, reason = _load()
    if reason is not None:
        raise RuntimeError(f"keras_ln_kernels cannot be used: {reason}")
    return loaded


def instruction_set() -> str:
    """What calls use: "avx512", "avx2" or "neon".

    Raises:
        RuntimeError: with the reason, where there are no kernels here.
    """
    return library().kln_instruction_set().decode()


def use_instruction_set(name: str | None) -> None:
    """Makes calls use `name` from now on; None for the best there is.

    The environment variable KERAS_LN_KERNELS_ISA does the same at the start;
    there, a name that is not to be had is passed over.

    Raises:
        ValueError: where it is not to be had.
        RuntimeError: with the reason, where there are no kernels here.
    """
    encoded = None if name is None else name.encode()
    wrong = library().kln_use_instruction_set(encoded)
    if wrong is not None:
        raise ValueError(f"name: {wrong.decode()}. Received: {name!r}.")


def use_sharing(name: str | None) -> None:
    """Makes calls share out their work by "rows" or by "columns".

    None is for the rule, which the environment variable
    KERAS_LN_KERNELS_SHARING can replace at the start, too.

    Raises:
        ValueError: for another name.
        RuntimeError: with the reason, where there are no kernels here.
    """
    encoded = None if name is None else name.encode()
    wrong = library().kln_use_sharing(encoded)
    if wrong is not None:
        raise ValueError(f"name: {wrong.decode()}. Received: {name!r}.")


def release_scratch() -> None:
    """Frees the memory that is kept between calls."""
    library().kln_release_scratch()


@functools.cache
def _load() -> tuple[Any, str | None]:
    """The library and None, or None and why not."""
    # Another build, of the address sanitizer say, may take its place.
    named = os.environ.get("KERAS_LN_KERNELS_LIBRARY")
    # Absolute: the loader looks for a bare name in the system's folders.
    path = Path(named).absolute() if named else _PATH
    if (wrong := damage(path, built_here=not named)) is not None:
        return None, wrong
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        return None, f"{path} does not load ({error})."
    if not hasattr(loaded, "kln_abi_version"):
        return None, f"{path} is no library of keras-ln-kernels."
    loaded.kln_abi_version.restype = ctypes.c_int32
    version = loaded.kln_abi_version()
    if version != ABI_VERSION:
        return None, (
            f"{path} has version {version} of its interface, this package "
            f"needs version {ABI_VERSION}: install it anew."
        )
    try:
        _declare(loaded)
    except AttributeError as error:
        return None, f"{path} is not complete ({error}): install it anew."
    reason = loaded.kln_unsupported_reason()
    if reason is not None:
        return None, f"{reason.decode()}."
    return loaded, None


def _declare(loaded: Any) -> None:
    problem = ctypes.POINTER(Problem)
    text, size = ctypes.c_char_p, ctypes.c_int64
    declarations: dict[str, tuple[Any, list[Any]]] = {
        "kln_unsupported_reason": (text, []),
        "kln_instruction_set": (text, []),
        "kln_use_instruction_set": (text, [text]),
        "kln_residual_bytes": (size, [problem]),
        "kln_useful_threads": (size, [problem]),
        "kln_sharing": (text, [problem]),
        "kln_use_sharing": (text, [text]),
        "kln_core_cache_bytes": (size, []),
        "kln_cpuid_runs": (size, []),
        "kln_forward": (text, [problem, ctypes.POINTER(Forward)]),
        "kln_backward": (text, [problem, ctypes.POINTER(Backward)]),
        "kln_product": (
            text,
            [ctypes.c_int32, *[size] * 3, *[ctypes.c_void_p] * 3, size],
        ),
        "kln_release_scratch": (None, []),
    }
    for name, (result, arguments) in declarations.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
