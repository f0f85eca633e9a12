"""The backend contract on torch."""

import dataclasses
import functools
import typing
import warnings

import torch
from torch.autograd import forward_ad

from keras_ln._keras import exports_unknown_steps, torch_device
from keras_ln.backend import TraceContext

# A trace has fixed sizes. Comparing them warned once for each, at any export.
warnings.filterwarnings(
    "ignore", category=torch.jit.TracerWarning, module="keras_ln"
)

tanh = torch.tanh
sigmoid = torch.sigmoid
relu = torch.relu
exp = torch.exp
log = torch.log
sqrt = torch.sqrt
matmul = torch.matmul
reshape = torch.reshape
where = torch.where


def cast(x, dtype):
    """The tensor in a dtype, which may be given by name."""
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    return x if x.dtype == dtype else x.to(dtype)


def transpose(x, axes=None):
    """The axes in another order, or the two of a matrix."""
    return x.t() if axes is None else x.permute(axes)


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return torch.mean(x, dim=axis, keepdim=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return torch.sum(x, dim=axis, keepdim=keepdims)


def how_to_densify(x):
    if not isinstance(x, torch.Tensor):
        return None
    if x.is_nested:
        return "Call torch.nested.to_padded_tensor with it."
    return None if x.layout is torch.strided else "Call its to_dense()."


def on_cpu():
    return torch_device().startswith("cpu")


def once_all(conditions, x, message):
    return x


def stands_for_unknown(length):
    return length == 1 and torch.jit.is_tracing() and exports_unknown_steps()


def current_trace():
    """None: see the package docstring."""


def fused_sum(x, axes, keepdims=False, weights=None):
    x = x if weights is None else x * weights
    # Without axes torch would sum over all of them.
    return torch.sum(x, dim=axes, keepdim=keepdims) if axes else x


def scan(step, init, xs, *, reverse=False):
    length = next(iter(xs.values())).shape[0]
    if length == 1 and stands_for_unknown(length):
        raise ValueError(
            "torch unrolls the loop over time when it exports, so the number "
            "of steps must be known. Received: one step, which Keras traces in "
            "the place of an unknown number, and inputs of unknown size. Call "
            "model.export with an `input_signature` that has all sizes except "
            "the batch's, or export on TensorFlow."
        )
    carry, rows = init, []
    for t in range(length - 1, -1, -1) if reverse else range(length):
        carry, y = step(carry, {name: x[t] for name, x in xs.items()})
        rows.append(y)
    if reverse:
        rows.reverse()
    return carry, {
        name: torch.stack([row[name] for row in rows]) for name in rows[0]
    }


def custom_vjp(
    forward,
    backward,
    reference=None,
    compiled=True,
    reference_backward=None,
    platform="cpu",
):
    reference = reference or forward
    functions = (forward, backward, reference, reference_backward or backward)

    def op(arrays, keep=True, owner="An op of keras_ln"):
        if not torch.is_grad_enabled():
            return forward(arrays, keep=False)[0]
        if torch.compiler.is_compiling():
            outputs: list[str] = []
            made = _Read.apply(
                (forward, backward), (*arrays,), outputs, *arrays.values()
            )
            # With the compiler's backend "eager" such a gradient has no history
            # (torch 2.13), and its gradient would be zero.
            made = map(torch.ops.keras_ln.once, made)
            return dict(zip(outputs, made, strict=True))
        if torch.is_inference_mode_enabled():
            return forward(arrays, keep=False)[0]
        tensors = arrays.values()
        # The hint is for torch.func, in which tensors do not say whether they
        # are differentiated.
        keep = keep or any(tensor.requires_grad for tensor in tensors)
        call = _Call(*functions, (*arrays,), keep)
        results = _Op.apply(call, *tensors)
        return dict(zip(call.outputs, results, strict=False))

    return op


def trace_context(arrays):
    autodiff_reason = compiler_reason = None
    if torch.compiler.is_compiling():
        compiler_reason = (
            "torch.compile and torch.export differentiate the Python code that "
            "they read, without a hand-written gradient."
        )
        if _inside_a_derivative():
            autodiff_reason = (
                "torch.compile with torch.func reads ordinary operations."
            )
    # torch has no public function that tells forward mode (2.13). The level of
    # the dual numbers shows it.
    if forward_ad._current_level >= 0:
        autodiff_reason = (
            "Forward mode (torch.func.jvp, jacfwd) needs ordinary operations."
        )
    if torch.jit.is_tracing():
        autodiff_reason = "torch.jit.trace records ordinary operations."
    device = arrays["x"].device if arrays else None
    fused_reason = compiler_reason
    if fused_reason is None and (
        torch._C._functorch.peek_interpreter_stack() is not None
        or any(map(_is_legacy_batched, (arrays or {}).values()))
    ):
        fused_reason = "torch.func transforms ordinary operations."
    return TraceContext(
        autodiff_reason, compiler_reason, on_cpu(), device, fused_reason
    )


def _has_batch_key(tensor):
    key = torch._C._dispatch_key_parse("Batched")
    return torch._C._dispatch_keys(tensor).has(key)


# Whether a tensor is of the older of torch's two vmaps; torch 2.3 lacks it.
_is_legacy_batched = getattr(
    torch._C._functorch, "is_legacy_batchedtensor", _has_batch_key
)


def _no_view(tensor):
    if not tensor._is_view():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


# torch.compile asks once for each stack of transforms.
@torch.compiler.assume_constant_result
def _inside_a_derivative():
    """Whether torch.func.grad, vjp or jvp is among the transforms."""
    functorch = torch._C._functorch
    stack = functorch.get_interpreter_stack() or ()
    return any(t.key() != functorch.TransformType.Vmap for t in stack)


@dataclasses.dataclass(eq=False)
class _Call:
    """The functions and names of an op's call, without its tensors.

    autograd.Function takes flat tensors. It passes on an object like this
    unchanged, unlike a dictionary, which torch.func copies.
    """

    forward: typing.Any
    backward: typing.Any
    reference: typing.Any
    reference_backward: typing.Any
    arrays: tuple[str, ...]
    keep: bool
    outputs: tuple[str, ...] = ()
    # The residuals' places among the arrays and the results, by name.
    residuals: typing.Any = None


class _Op(torch.autograd.Function):
    """One call of an op made by ``custom_vjp``."""

    # torch.func.vmap runs the methods below under vmap.
    generate_vmap_rule = True

    @classmethod
    def apply(cls, call, *tensors):
        functorch = torch._C._functorch
        if functorch.peek_interpreter_stack() is not None or any(
            map(functorch.is_functorch_wrapped_tensor, tensors)
        ):
            return super().apply(call, *tensors)
        # `Function.apply` would first bind `forward`'s signature and look at
        # each tensor, a tenth of a small step's time (torch 2.13).
        return super(torch.autograd.Function, cls).apply(call, *tensors)

    @staticmethod
    def forward(call, *tensors):
        arrays = dict(zip(call.arrays, tensors, strict=True))
        outputs, residuals = call.forward(arrays, keep=call.keep)
        # autograd lets nobody write into a view that was made here.
        outputs = {n: _no_view(t) for n, t in outputs.items()}
        known = [*tensors, *outputs.values()]
        places = {id(tensor): place for place, tensor in enumerate(known)}
        call.outputs, call.residuals = (*outputs,), {}
        if call.keep:
            for name, tensor in residuals.items():
                if id(tensor) not in places:
                    places[id(tensor)] = len(known)
                    known.append(tensor)
                call.residuals[name] = places[id(tensor)]
        return tuple(known[len(tensors) :])

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, *tensors = inputs
        known = [*tensors, *output]
        ctx.call = call
        ctx.save_for_backward(
            *tensors, *[known[k] for k in call.residuals.values()]
        )
        count = len(call.outputs)
        ctx.mark_non_differentiable(*output[count:])
        # Zeros for the residuals would take their memory.
        ctx.set_materialize_grads(False)
        ctx.zeros = [
            functools.partial(
                torch.zeros, x.shape, dtype=x.dtype, device=x.device
            )
            for x in output[:count]
        ]

    @staticmethod
    def backward(ctx, *cotangents):
        call, saved = ctx.call, ctx.saved_tensors
        count = len(call.arrays)
        if torch.is_grad_enabled() or not call.keep:
            # create_graph=True: the saved residuals carry no history, so
            # second derivatives need them computed again from the arrays.
            arrays = dict(zip(call.arrays, saved[:count], strict=True))
            _, residuals = call.reference(arrays, keep=True)
            backward = call.reference_backward
        else:
            residuals = dict(zip(call.residuals, saved[count:], strict=True))
            backward = call.backward
        dense = {
            name: zeros() if cotangent is None else _dense(cotangent)
            for name, zeros, cotangent in zip(
                call.outputs, ctx.zeros, cotangents, strict=False
            )
        }
        gradients = backward(residuals, dense)
        return None, *[gradients.get(name) for name in call.arrays]


class _Read(torch.autograd.Function):
    """An op of ``custom_vjp`` that torch.compile reads: first derivatives."""

    @staticmethod
    def forward(ctx, functions, names, outputs, *tensors):
        forward, ctx.vjp = functions
        arrays = dict(zip(names, tensors, strict=True))
        made, residuals = forward(arrays, keep=True)
        outputs.extend(made)
        ctx.names, ctx.outputs, ctx.residuals = names, (*made,), (*residuals,)
        ctx.save_for_backward(*residuals.values())
        return tuple(made.values())

    @staticmethod
    def backward(ctx, *cotangents):
        residuals = dict(zip(ctx.residuals, ctx.saved_tensors, strict=True))
        given = dict(zip(ctx.outputs, cotangents, strict=True))
        gradients = ctx.vjp(residuals, given)
        return None, None, None, *[gradients.get(name) for name in ctx.names]


def _dense(cotangent):
    """The cotangent as a dense tensor; embeddings may send sparse ones."""
    if cotangent.layout is torch.strided:
        return cotangent
    return cotangent.to_dense()


jacobian = torch.autograd.functional.jacobian
