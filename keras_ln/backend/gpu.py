"""The part of the bindings of kernels for GPUs that needs no framework.

They are in the package keras-ln-kernels, and need a CUDA driver and NVRTC.
"""

import os
import warnings

from keras_ln.backend import native

_SWITCH = "KERAS_LN_KERNELS"
# The compute capabilities, such as 90, of GPUs on which
# tests/test_on_a_gpu.py has passed with these kernels: the date, and versions.
PASSED: dict[int, str] = {}
_ELSEWHERE = "Only JAX and torch call the kernels for GPUs."


def off():
    """Why kernels for GPUs are off everywhere here, or None."""
    if PASSED or os.environ.get(_SWITCH) in ("0", "cuda"):
        return native.reason()
    return (
        "The kernels for GPUs are off: their tests have not passed on one yet. "
        f"{_SWITCH}=cuda switches them on."
    )


def reason_on(device):
    """Why a GPU, by the driver's number of it, runs none of them, or None."""
    wrong = off()
    if wrong is not None:
        return wrong
    from keras_ln_kernels import gpu

    wrong = gpu.unsupported_reason()
    if wrong is not None:
        return f"The kernels for GPUs cannot run: {wrong}"
    if os.environ.get(_SWITCH) == "cuda":
        return None
    opened = gpu.gpu()
    if not 0 <= device < opened.devices:
        return f"The kernels for GPUs cannot run: there is no GPU {device}."
    capability = opened.limits(device).capability
    if capability in PASSED:
        return None
    return (
        "The kernels for GPUs are off: their tests have not passed on one of "
        f"compute capability {capability // 10}.{capability % 10} yet. "
        f"{_SWITCH}=cuda switches them on."
    )


def plan(call, units, format, device, batch):
    """How a GPU runs a call, or the sentence that says why not.

    The first call for each kernel compiles and loads it.
    """
    from keras_ln_kernels import gpu

    try:
        return gpu.gpu().plan(
            *(call.cell, call.backward, units, format, device, batch)
        )
    except (RuntimeError, MemoryError) as error:
        # Whoever switched the kernels on expects them to be used.
        warnings.warn(f"A kernel cannot be used: {error}", stacklevel=2)
        return f"{error}"


def plan_reason(x, cell, units, operands):
    """None is asked: see the package docstring."""
    return _ELSEWHERE


def reason():
    """Why no kernels for GPUs are called; see the package docstring."""
    return _ELSEWHERE


def call_gpu(call, arrays):
    """Refused: see the package docstring."""
    raise NotImplementedError(_ELSEWHERE)
