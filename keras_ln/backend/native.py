"""What the bindings of the kernels share, which is no framework.

The kernels are a package of their own, keras-ln-kernels, that need not be
there.
"""

import functools
import importlib.util
import os
import warnings

# The versions of keras_ln_kernels that have this interface.
_SERIES = "0.1"
_NAME = "keras-ln-kernels"

# The names that XLA knows them by. Errors show them where a program runs
# without the kernels.
_NOTE = f"from {_NAME}: export inside of keras_ln.ops.portable() instead"
TARGETS = {False: f"forward ({_NOTE})", True: f"backward ({_NOTE})"}


def reason():
    """Why there are no kernels for any problem, or None."""
    if os.environ.get("KERAS_LN_KERNELS") == "0":
        return "KERAS_LN_KERNELS=0 is set."
    return _reason()


@functools.cache
def _reason():
    if importlib.util.find_spec("keras_ln_kernels") is None:
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
    # Whoever installed the kernels expects them to be used.
    warnings.warn(sentence, stacklevel=2)
    return sentence


def description():
    """The kernels' version and instruction set, where they can be used."""
    from keras_ln_kernels import __version__, instruction_set

    return f"{_NAME} {__version__}, {instruction_set()}"
