"""Launches of keras-ln-kernels on torch's GPUs, as operators of torch's."""

import functools

import torch

from keras_ln._keras import torch_device
from keras_ln.backend import gpu, native, verdicts
from keras_ln.backend.torch.native import (
    TOO_OLD,
    is_eager,
    new,
    no_backward,
    operator,
)


def _numbers():
    """The number of torch's default GPU, or why it has none."""
    number = _number(torch.device(torch_device()))
    if number is None:
        return f"Tensors are on {torch_device()}: the GPU kernels need CUDA."
    return (number,)


def plan_reason(x, cell, units, operands, training):
    ways = (False, True) if torch.is_grad_enabled() else (False,)
    # Compiled programs may be for any number of rows and steps.
    shape = () if torch.compiler.is_compiling() else tuple(x.shape[:2])
    return _plan_reason(x.device, cell, units, operands, ways, shape)


@torch.compiler.assume_constant_result
def _plan_reason(device, cell, units, operands, ways, shape):
    from keras_ln_kernels.gpu_call import GpuCall

    number = _number(device)
    if number is None:
        return f"Tensors are on {device}: the GPU kernels need CUDA."
    wanted = number, cell, format_of(operands), units, len(ways) == 2, shape
    wrong = gpu.reason_on(number) or gpu.verdict(*wanted)
    if wrong is not None:
        return wrong
    for backward in ways:
        call = GpuCall(cell, backward, operands, (), (), ())
        wrong = _planned(call, units, number)
        if isinstance(wrong, str):
            return wrong
    return None


def call_gpu(call, arrays):
    if not call.backward and is_eager(arrays.values()):
        return _run(call, arrays)
    operators = torch.ops.keras_ln
    run = operators.gpu_backward if call.backward else operators.gpu_forward
    results = run(
        *[arrays.get(name) for name in call.takes],
        ",".join(call.results),
        call.cell,
        call.operands,
        *call.options,
    )
    made = dict(zip(call.gives, results, strict=True))
    return {name: made[name] for name in call.results}


@native.once
def _make_operators():
    """Makes torch.ops.keras_ln.gpu_forward, .gpu_backward and .once."""
    if not hasattr(torch.library, "register_vmap"):
        return TOO_OLD
    from keras_ln_kernels import gpu_call

    options = [f"{kind} {name}" for name, kind in gpu_call.OPTIONS.items()]
    for backward in (False, True):
        operator(
            "gpu_backward" if backward else "gpu_forward",
            gpu_call.BACKWARD if backward else gpu_call.FORWARD,
            ["str operands", *options],
            functools.partial(_call_of, backward),
            _run,
        ).register_autograd(no_backward)
    once = torch.library.custom_op(
        "keras_ln::once",
        torch.clone,
        mutates_args=(),
        schema="(Tensor x) -> Tensor",
    )
    once.register_fake(torch.empty_like)
    once.register_autograd(_first)


# So that torch.compile does not trace into it.
reason = torch.compiler.assume_constant_result(
    gpu.reason_with(
        _numbers,
        _make_operators,
        "Recurrent layers of keras_ln run a Python loop on this GPU. `python "
        "-m keras_ln gpu` checks the GPU kernels in some minutes; then LNLSTM, "
        "WNLSTM and LNGRU use them where they are right and faster.",
    )
)
said = functools.partial(gpu.checked, _numbers)


def _first(ctx, cotangent):
    """The cotangent, unless second derivatives are asked for."""
    if torch.is_grad_enabled():
        no_backward(ctx)
    return cotangent


def _call_of(backward, arrays, results, cell, operands, *options):
    from keras_ln_kernels.gpu_call import GpuCall

    names = tuple(results.split(","))
    return GpuCall(cell, backward, operands, (*arrays,), names, options)


def _run(call, arrays):
    """The results by name, on the current stream of the tensors' device."""
    from keras_ln_kernels import gpu as library

    zx = arrays["zx"]
    number = _number(zx.device)
    if number is None:
        raise ValueError(
            f"zx: expected a tensor on a CUDA device. Received: {zx.device}."
        )
    sizes = call.sizes({name: array.shape for name, array in arrays.items()})
    arrays = {
        name: _checked(call, name, array, call.shape(name, sizes), zx.device)
        for name, array in arrays.items()
    }
    plan = _planned(call, sizes.units, number, sizes.batch)
    if isinstance(plan, str):
        raise RuntimeError(plan)
    opened = library.gpu()
    made = {
        name: new(call, name, call.shape(name, sizes), arrays)
        for name in call.results
    }
    # Of torch's allocator: no other stream gets it before this one is through.
    space = {
        name: zx.new_empty(size, dtype=torch.uint8)
        for name, size in opened.workspace(plan, number, sizes.batch).items()
    }
    places = {n: a.data_ptr() for n, a in (arrays | made | space).items()}
    try:
        opened.launch(
            plan,
            places,
            sizes.batch,
            sizes.steps,
            device=number,
            stream=_stream(zx.device),
            **call.named_options(),
        )
    except library.LaunchError as error:
        if error.code >= 700:  # The context is lost.
            verdicts.withdraw(number, error)
        raise
    return made


def _planned(call, units, number, batch=1):
    """The plan, or a sentence on why there is none."""
    from keras_ln_kernels import gpu as library

    for_rows = (call, units, format_of(call.operands), number)
    plan = _found(*for_rows, 1)
    if isinstance(plan, str) or batch <= library.gpu().at_once(plan, number):
        return plan
    larger = _found(*for_rows, batch)
    # One row's plan runs any batch.
    return plan if isinstance(larger, str) else larger


def _found(call, units, format, number, batch):
    # Of batches of more than a row, those that do not run at once are asked
    # for, which have one plan.
    key = (call.cell, call.backward, units, format, number, batch > 1)
    if key not in _known:
        if _captures():
            raise RuntimeError(
                "A GPU kernel cannot be loaded in a CUDA graph. Run the "
                "layer once, with a gradient if the graph has one, on a batch "
                "of the same size, before the graph is captured."
            )
        _known[key] = gpu.plan(call, units, format, number, batch)
    return _known[key]


# By cell, direction, units, format, device, and whether the batch is large.
_known: dict = {}


def format_of(operands):
    """The format of a product's operands, as in torch's LSTM."""
    if operands != "float32":
        return operands
    cudnn = torch.backends.cudnn
    # Older versions have no such setting; once it is set, the other raises.
    precision = getattr(getattr(cudnn, "rnn", None), "fp32_precision", None)
    if precision is None:
        return "tf32" if cudnn.allow_tf32 else "3xtf32"
    return "tf32" if precision == "tf32" else "3xtf32"


def _number(device):
    """The driver's number of a device, or None if it is none of CUDA's."""
    if device.type != "cuda":
        return None
    return torch.cuda.current_device() if device.index is None else device.index


def _stream(device):
    return torch.cuda.current_stream(device).cuda_stream


def _captures():
    return torch.cuda.is_current_stream_capturing()


def _checked(call, name, array, shape, device):
    """The array, dense; `ValueError` if a kernel would misread it."""
    dtype = getattr(torch, call.dtype_of(name))
    if array.shape != shape or array.dtype != dtype or array.device != device:
        raise ValueError(
            f"{name}: expected a tensor of {dtype} and shape {shape} on "
            f"{device}. Received: {array.dtype}, {tuple(array.shape)} on "
            f"{array.device}."
        )
    array = array.contiguous().resolve_neg()
    return array.clone() if array.data_ptr() % 16 else array
