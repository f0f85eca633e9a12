"""Framework-independent part of the bindings of the CPU extension.

The extension is the package keras-ln-kernels, which is optional.
"""

import collections
import functools
import importlib.util
import os
import platform
import threading
import warnings

SWITCH = "KERAS_LN_KERNELS"
# The versions of keras_ln_kernels that have this interface.
_SERIES = "0.9"
_NAME = "keras-ln-kernels"
# The platforms of the library: `TARGETS` of kernels/build_library.py, in
# Python's names.
_PLATFORMS = ("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64")

# XLA's names of the calls. Errors show them where a program runs without the
# CPU extension.
NOTE = f"from {_NAME}: export inside of keras_ln.ops.portable() instead"
TARGETS = {False: f"forward ({NOTE})", True: f"backward ({NOTE})"}


def once(function):
    """`functools.cache` of a function without arguments, for several threads.

    The first calls it, and the others wait.
    """
    cached, lock = functools.cache(function), threading.Lock()

    def found():
        if not cached.cache_info().currsize:
            with lock:
                cached()
        return cached()

    functools.update_wrapper(found, function)
    found.__dict__["cache_clear"] = cached.cache_clear
    return found


def reason_with(registered):
    """`native_reason` of a backend; see the package docstring.

    `registered()` registers the calls, or returns why it cannot.
    """
    return lambda: switched_off() or missing() or registered()


def switched_off():
    """Why the environment variable rules the package out, or None."""
    value = switch()
    if value == "0":
        return f"{SWITCH}=0 is set."
    return (
        None if value in ("", "1", "cuda", "verify") else _not_understood(value)
    )


def switch():
    """The value of the environment variable."""
    return os.environ.get(SWITCH, "").strip().lower()


@functools.cache
def _not_understood(value):
    sentence = (
        f"{SWITCH} must be 0, 1, cuda or verify: {_NAME} is not used. "
        f"Received: {value!r}."
    )
    warnings.warn(sentence, stacklevel=2)
    return sentence


@once
def missing():
    """Why keras-ln-kernels cannot be used at all, or None."""
    if importlib.util.find_spec("keras_ln_kernels") is None:
        here = platform.system(), platform.machine()
        if here not in _PLATFORMS:
            return f"{_NAME} has no library for {' on '.join(here)}."
        return f"{_NAME} is not installed."
    from keras_ln_kernels.version import __version__

    if __version__.rpartition(".")[0] != _SERIES:
        wrong = f"it has version {__version__}, keras_ln needs {_SERIES}.*."
    else:
        from keras_ln_kernels import unsupported_reason

        wrong = unsupported_reason()
    if wrong is None:
        return None
    sentence = f"{_NAME} is installed and cannot be used: {wrong}"
    # Whoever installed the package expects it to be used.
    warnings.warn(sentence, stacklevel=2)
    return sentence


def description():
    """Version and instruction set of the CPU extension, if it can run."""
    from keras_ln_kernels import __version__, instruction_set

    return f"{_NAME} {__version__}, {instruction_set()}"


# Memory of residuals that are gone, to be used again: page faults on fresh
# memory take a tenth of a training step. Layers return theirs in the reverse of
# the order in which the next step asks, hence last in, first out. A thread
# keeps up to so many bytes and pieces, until `keras.backend.clear_session()`.
MOST_BYTES = 2**28
MOST_PIECES = 64


class Pieces:
    """The memory that a thread keeps.

    Nobody waits for the lock: a piece may come back from any thread, and from
    a finalizer that runs in the middle of these methods, where waiting would
    never end. Whoever finds it taken makes or frees memory instead.
    """

    def __init__(self):
        self.bytes = 0
        self._pieces: collections.deque = collections.deque()
        self._lock = threading.Lock()

    def __len__(self):
        return len(self._pieces)

    def pop(self):
        """The piece that came last, or None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if not self._pieces:
                return None
            piece = self._pieces.pop()
            self.bytes -= len(piece)
            return piece
        finally:
            self._lock.release()

    def append(self, piece):
        """Adds a piece, and frees the oldest ones where there is too much."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._pieces.append(piece)
            self.bytes += len(piece)
            while self.bytes > MOST_BYTES or len(self) > MOST_PIECES:
                self.bytes -= len(self._pieces.popleft())
        finally:
            self._lock.release()
