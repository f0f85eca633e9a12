"""The part of the bindings of kernels for GPUs that needs no framework.

They are in the package keras-ln-kernels, and need a CUDA driver and NVRTC.
"""

import warnings

from keras_ln.backend import native

# The compute capabilities, such as 90, of GPUs on which
# tests/test_on_a_gpu.py has passed with these kernels: the date, and versions.
PASSED: dict[int, str] = {}
_ELSEWHERE = "Only JAX and torch call the kernels for GPUs."


def reason_with(devices, registered):
    """`gpu_reason` of a backend; see the package docstring.

    `devices()` gives the driver's numbers of the GPUs that programs run on, or
    says why there are none; `registered()` registers the kernels, or says why
    it cannot.
    """

    def reason():
        off = native.switched_off()
        if off is not None:
            return off
        if native.switch() != "cuda" and not PASSED:
            return (
                "The kernels for GPUs are off: their tests have not passed on "
                f"one yet. {native.SWITCH}=cuda switches them on."
            )
        wrong = native.missing()
        if wrong is not None:
            return wrong
        found = devices()
        if isinstance(found, str):
            return found
        for device in found:
            wrong = reason_on(device)
            if wrong is not None:
                return wrong
        return registered()

    return reason


def reason_on(device):
    """Why a GPU, by the driver's number of it, runs none of them, or None."""
    from keras_ln_kernels import gpu

    wrong = gpu.unsupported_reason()
    if wrong is not None:
        return f"The kernels for GPUs cannot run: {wrong}"
    if native.switch() == "cuda":
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
        f"{native.SWITCH}=cuda switches them on."
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
    except MemoryError as error:
        # Not remembered: at the next call there may be some.
        raise MemoryError(f"{error} {native.SWITCH}=0 needs none.") from None
    except RuntimeError as error:
        # Whoever switched the kernels on expects them to be used.
        warnings.warn(f"A kernel cannot be used: {error}", stacklevel=2)
        return f"{error}"


def plan_reason(x, cell, units, operands, training):
    """None is asked: see the package docstring."""
    return _ELSEWHERE


def reason():
    """Why no kernels for GPUs are called; see the package docstring."""
    return _ELSEWHERE


def call_gpu(call, arrays):
    """Refused: see the package docstring."""
    raise NotImplementedError(_ELSEWHERE)
