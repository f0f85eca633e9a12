"""The part of the bindings of kernels for GPUs that needs no framework.

They are in the package keras-ln-kernels, and need a CUDA driver and NVRTC.
"""

import functools
import warnings

from keras_ln.backend import native

_ELSEWHERE = "Only JAX and torch call the kernels for GPUs."


def reason_with(devices, registered, advice=None):
    """`gpu_reason` of a backend; see the package docstring.

    `devices()` gives the driver's numbers of the GPUs that programs run on, or
    says why there are none; `registered()` registers the kernels, or says why
    it cannot. `advice` is warned of once where the kernels could run, but were
    not verified.
    """

    def reason():
        wrong = native.switched_off() or native.missing()
        if wrong is not None:
            return wrong
        found = devices()
        if isinstance(found, str):
            return found
        for device in found:
            wrong = reason_on(device)
            if wrong is not None:
                if advice and "not verified" in wrong:
                    _warn(advice)
                return wrong
        return registered()

    return reason


def reason_on(device):
    """Why a GPU, by the driver's number of it, runs none of them, or None."""
    from keras_ln_kernels import gpu

    wrong = gpu.unsupported_reason()
    if wrong is not None:
        return f"The kernels for GPUs cannot run: {wrong}"
    if native.switch() in ("cuda", "verify"):
        return None
    wrong = gpu.gpu().reason(device)
    if wrong is not None:
        return f"The kernels for GPUs cannot run: {wrong}"
    from keras_ln.backend import verdicts

    return verdicts.reason_of_state(device)


@functools.cache
def _warn(advice):
    warnings.warn(advice, stacklevel=2)


def verdict(device, cell, format, units, training, shape):
    """Why the check on this GPU lets no kernel run such a batch, or None."""
    if native.switch() == "cuda":
        return None
    from keras_ln.backend import verdicts

    asked = (device, cell, format, units, training, *shape)
    wrong = verdicts.reason(*asked)
    # Another process may be at it.
    open_ = "not verified", "did not end"
    if native.switch() == "verify" and any(s in (wrong or "") for s in open_):
        verdicts.verify(device, format, units)
        wrong = verdicts.reason(*asked)
    return wrong


def withdraw(device, error):
    """After an error that ends a GPU's context."""
    from keras_ln.backend import verdicts

    verdicts.withdraw(device, error)


def checked(devices):
    """Who checked the kernels, if `reason` is None."""
    if native.switch() == "cuda":
        return f"{native.SWITCH}=cuda is set"
    if native.switch() == "verify":
        return "checked at first use"
    from keras_ln.backend import verdicts

    return ", ".join(dict.fromkeys(verdicts.said(d) for d in devices()))


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


def said():
    """Who checked the kernels; see the package docstring."""
    return _ELSEWHERE


def plan_reason(x, cell, units, operands, training):
    """None is asked: see the package docstring."""
    return _ELSEWHERE


def reason():
    """Why no kernels for GPUs are called; see the package docstring."""
    return _ELSEWHERE


def call_gpu(call, arrays):
    """Refused: see the package docstring."""
    raise NotImplementedError(_ELSEWHERE)
