"""Framework-independent part of the bindings of the GPU kernels.

The kernels are in keras-ln-kernels, and need a CUDA driver and NVRTC.
"""

import functools
import warnings

from keras_ln.backend import native, verdicts

# XLA's name of the call, which errors of other programs show.
TARGET = f"launch ({native.NOTE})"


def reason_with(devices, registered, advice=None):
    """`gpu_reason` of a backend; see the package docstring.

    `devices()` returns the driver's numbers of the GPUs that programs run on,
    or a sentence on why none do; `registered()` registers the kernels, or
    returns why it cannot. `advice` is a warning, given once, for kernels that
    could run but were not verified.
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
    """Why the GPU with this number of the driver's runs none, or None."""
    from keras_ln_kernels import gpu

    wrong = gpu.unsupported_reason()
    if wrong is not None:
        return f"The GPU kernels cannot run: {wrong}"
    if native.switch() in ("cuda", "verify"):
        return None
    wrong = gpu.gpu().reason(device)
    if wrong is not None:
        return f"The GPU kernels cannot run: {wrong}"
    return verdicts.reason_of_state(device)


@functools.cache
def _warn(advice):
    warnings.warn(advice, stacklevel=2)


def verdict(device, cell, format, units, training, shape):
    """Why the check on this GPU rules out such a batch, or None."""
    if native.switch() == "cuda":
        return None
    asked = (device, cell, format, units, training, *shape)
    wrong = verdicts.reason(*asked)
    # Another process may be checking.
    open_ = "not verified", "did not end"
    if native.switch() == "verify" and any(s in (wrong or "") for s in open_):
        verdicts.verify(device, format, units)
        wrong = verdicts.reason(*asked)
    return wrong


def checked(devices):
    """When the kernels were checked, if `reason` is None."""
    if native.switch() == "cuda":
        return f"{native.SWITCH}=cuda is set"
    if native.switch() == "verify":
        return "checked at first use"
    return ", ".join(dict.fromkeys(verdicts.said(d) for d in devices()))


def plan(call, units, format, device, batch):
    """How a GPU runs a call, or a sentence on why not.

    The first call for each kernel compiles and loads it.
    """
    from keras_ln_kernels import gpu

    try:
        return gpu.gpu().plan(
            *(call.cell, call.backward, units, format, device, batch)
        )
    except MemoryError as error:
        # Not cached: the next call may find memory.
        raise MemoryError(f"{error} Or set {native.SWITCH}=0.") from None
    except RuntimeError as error:
        # A user who switched the kernels on expects them to be used.
        warnings.warn(f"A GPU kernel cannot be used: {error}", stacklevel=2)
        return f"{error}"


def planned(devices, call, units, format, batch=None):
    """How XLA's program runs a call on all GPUs, and bytes of its workspace.

    For any batch if that is None. In place of a plan there may be a sentence on
    why the GPUs cannot run it.
    """
    from keras_ln_kernels import gpu

    plans = {
        device: plan(call, units, format, device, batch or 1)
        for device in devices
    }
    different = dict.fromkeys(plans.values())
    wrong = next((found for found in different if isinstance(found, str)), None)
    if wrong is None and len(different) != 1:
        wrong = "A program is for all GPUs, and these GPUs differ."
    if wrong is not None and (batch or 1) > 1:
        # One row's plan runs any batch.
        return planned(devices, call, units, format)
    if wrong is not None:
        return wrong, {}
    space: dict = {}
    for device, found in plans.items():
        gpu.gpu().keep(found, device)
        for name, size in gpu.gpu().workspace(found, device, batch).items():
            space[name] = max(size, space.get(name, 0))
    return next(iter(different)), space


def reason_of_all(devices, cell, units, operands, format, training, shape):
    """`gpu_plan_reason` of programs of XLA's, which are for all GPUs."""
    from keras_ln_kernels.gpu_call import GpuCall

    for device in devices:
        wrong = verdict(device, cell, format, units, training, shape)
        if wrong is not None:
            return wrong
    for backward in (False, True)[: 1 + training]:
        call = GpuCall(cell, backward, operands, (), (), ())
        found, _ = planned(devices, call, units, format)
        if isinstance(found, str):
            return found
    return None
