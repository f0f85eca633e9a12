"""The shared library: its functions, and whether it can be used.

src/keras_ln_kernels.h explains them.
"""

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from keras_ln_kernels.digest import damage

ABI_VERSION = 11

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_PATH = Path(__file__).with_name(f"libkeras_ln_kernels.{_SUFFIX}")


class Slot(ctypes.Structure):
    """KlnSlot."""

    _fields_ = [
        *[(name, ctypes.c_char_p) for name in ("name", "letters", "type")],
        ("cells", ctypes.c_int64),
        *[(name, ctypes.c_char) for name in ("forward", "backward")],
    ]


class Cell(ctypes.Structure):
    """KlnCell."""

    _fields_ = [("name", ctypes.c_char_p), ("gates", ctypes.c_int64)]


def unsupported_reason() -> str | None:
    """None, or the sentence that says why there are no kernels here."""
    _, reason = _load()
    return reason


def library() -> Any:
    """The library, loaded.

    Raises:
        RuntimeError: with the reason, if it cannot be used.
    """
    loaded, reason = _load()
    if reason is not None:
        raise RuntimeError(f"keras_ln_kernels cannot be used: {reason}")
    return loaded


def instruction_set() -> str:
    """The instruction set of calls: "avx512", "avx2", "neon" or "generic".

    Raises:
        RuntimeError: with the reason, if there are no kernels here.
    """
    return library().kln_instruction_set().decode()


def use_instruction_set(name: str | None) -> None:
    """Makes calls use `name` from now on; None for the best there is.

    The environment variable KERAS_LN_KERNELS_ISA does the same at the start;
    there, a name that is not to be had is passed over.

    Raises:
        ValueError: if it is not to be had.
        RuntimeError: with the reason, if there are no kernels here.
    """
    _use(library().kln_use_instruction_set, name)


def use_sharing(name: str | None) -> None:
    """Makes calls share out their work by "rows" or by "columns".

    None is for the rule, which the environment variable
    KERAS_LN_KERNELS_SHARING can replace at the start, too.

    Raises:
        ValueError: for another name.
        RuntimeError: with the reason, if there are no kernels here.
    """
    _use(library().kln_use_sharing, name)


def _use(function: Any, name: str | None) -> None:
    wrong = function(None if name is None else name.encode())
    if wrong is not None:
        raise ValueError(f"name: {wrong.decode()}. Received: {name!r}.")


class OpenMP(NamedTuple):
    """Addresses of functions of an OpenMP library, whose threads calls take."""

    parallel: int  # GOMP_parallel, which LLVM's and Intel's libraries have too
    threads: int  # omp_get_num_threads


def openmp_of(path: str) -> OpenMP | None:
    """The OpenMP library whose functions the loaded library at `path` calls.

    There may be several in a process. None if `path` calls no such library.
    """
    handles = [ctypes.CDLL(path)]
    if sys.platform == "linux":
        # Globally loaded libraries, as by `LD_PRELOAD`, come first there.
        handles.insert(0, ctypes.CDLL(None))
    for handle in handles:
        names = ("GOMP_parallel", "omp_get_num_threads")
        if all(hasattr(handle, name) for name in names):
            both = (getattr(handle, name) for name in names)
            places = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in both)
            return OpenMP(*places)
    return None


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
            f"needs version {ABI_VERSION}: install it again."
        )
    try:
        _declare(loaded)
    except AttributeError as error:
        return None, f"{path} is not complete ({error}): install it again."
    return loaded, None


def _declare(loaded: Any) -> None:
    problem = place = ctypes.c_void_p
    text, size = ctypes.c_char_p, ctypes.c_int64
    declarations: dict[str, tuple[Any, list[Any]]] = {
        "kln_slot": (ctypes.POINTER(Slot), [size]),
        "kln_cell": (ctypes.POINTER(Cell), [size]),
        "kln_instruction_set": (text, []),
        "kln_use_instruction_set": (text, [text]),
        "kln_residual_layout": (text, [problem, ctypes.POINTER(size)]),
        "kln_useful_threads": (size, [problem]),
        "kln_sharing": (text, [problem]),
        "kln_use_sharing": (text, [text]),
        "kln_core_cache_bytes": (size, []),
        "kln_cpuid_runs": (size, []),
        "kln_forward": (text, [problem]),
        "kln_backward": (text, [problem]),
        "kln_product": (
            text,
            [ctypes.c_int32, *[size] * 3, *[place] * 3, size],
        ),
        "kln_release_scratch": (None, []),
    }
    for name, (result, arguments) in declarations.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
