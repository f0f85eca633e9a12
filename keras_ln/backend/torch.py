"""The backend contract on torch."""

import dataclasses
import functools
import operator
import typing

import torch
from torch.autograd import forward_ad

from keras_ln._keras import exports_unknown_steps, torch_device

tanh = torch.tanh
sigmoid = torch.sigmoid
relu = torch.relu
exp = torch.exp
log = torch.log
sqrt = torch.sqrt
matmul = torch.matmul
where = torch.where


def cast(x, dtype):
    """The tensor in a dtype, which may be given by name."""
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype)
    return x if x.dtype == dtype else x.to(dtype)


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return torch.mean(x, dim=axis, keepdim=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return torch.sum(x, dim=axis, keepdim=keepdims)


def how_to_densify(x):
    """What to call, or None; see the package docstring."""
    if not isinstance(x, torch.Tensor):
        return None
    if x.is_nested:
        return "Call torch.nested.to_padded_tensor with it."
    return None if x.layout is torch.strided else "Call its to_dense()."


def on_cpu():
    """Whether tensors lie on a CPU; see the package docstring."""
    return torch_device().startswith("cpu")


def reads_python():
    """Whether torch.compile or torch.export is at work."""
    return torch.compiler.is_compiling()


def stands_for_unknown(length):
    """One step, where Keras traces it for a file; see the package docstring."""
    return length == 1 and torch.jit.is_tracing() and exports_unknown_steps()


def current_trace():
    """None: see the package docstring."""


def fused_sum(x, axes, keepdims=False, weights=None):
    """``sum``; see the package docstring."""
    x = x if weights is None else x * weights
    # Without axes torch would sum over all of them.
    return torch.sum(x, dim=axes, keepdim=keepdims) if axes else x


def scan(step, init, xs, *, reverse=False):
    """Loop over the leading axis of ``xs``; see the package docstring."""
    length = _tensors(xs)[0].shape[0]
    if length == 1 and stands_for_unknown(length):
        raise ValueError(
            "torch writes the loop over time out where it exports: the number "
            "of steps must be known. Received: one step, which Keras traces in "
            "the place of an unknown number, and inputs of unknown size. Call "
            "model.export with an `input_signature` that has all sizes but the "
            "batch's, or export on TensorFlow."
        )
    carry, rows = init, []
    for t in range(length - 1, -1, -1) if reverse else range(length):
        carry, y = step(carry, _map(operator.itemgetter(t), xs))
        rows.append(y)
    if reverse:
        rows.reverse()
    return carry, _map(lambda *leaves: torch.stack(leaves), *rows)


def custom_vjp(
    forward,
    backward,
    reference=None,
    compiled=True,
    reference_backward=None,
):
    """An op with a hand-written VJP; see the package docstring."""
    reference = reference or forward
    functions = (forward, backward, reference, reference_backward or backward)

    def op(*args, keep=True, owner="An op of keras_ln"):
        if reads_python() or plain_operations_reason(args) is not None:
            return reference(*args, keep=False)[0]
        if not torch.is_grad_enabled():
            return forward(*args, keep=False)[0]
        leaves = _tensors(args)
        # The hint is for torch.func, in which tensors do not say whether they
        # are differentiated.
        keep = keep or any(leaf.requires_grad for leaf in leaves)
        call = _Call(*functions, _skeleton(args), keep)
        results = _Op.apply(call, *leaves)
        return _fill(call.outputs, results)

    return op


def plain_operations_reason(tensors):
    """Traces and forward mode; see the package docstring."""
    if torch.jit.is_tracing():
        return "torch.jit.trace records ordinary operations."
    # torch exports no question about forward mode (2.13). It shows by the
    # level of the dual numbers.
    if not reads_python() and forward_ad._current_level >= 0:
        return (
            "Forward mode (torch.func.jvp, jacfwd) needs ordinary operations."
        )
    return None


@dataclasses.dataclass(eq=False)
class _Call:
    """What a call of an op has beside tensors: functions and structures.

    autograd.Function speaks flat tensors. It hands an object like this on as
    it is, other than a dictionary, which torch.func copies.
    """

    forward: typing.Any
    backward: typing.Any
    reference: typing.Any
    reference_backward: typing.Any
    # Structures, with 0 for a tensor.
    args: typing.Any
    keep: bool
    outputs: typing.Any = None
    residuals: typing.Any = None
    # Where the residuals are among the arguments and the results.
    places: typing.Any = ()


class _Op(torch.autograd.Function):
    """One call of an op made by ``custom_vjp``."""

    # torch.func.vmap runs the methods below under vmap.
    generate_vmap_rule = True

    @staticmethod
    def forward(call, *leaves):
        args = _fill(call.args, leaves)
        outputs, residuals = call.forward(*args, keep=call.keep)
        residuals = residuals if call.keep else None
        call.outputs, call.residuals = _skeleton(outputs), _skeleton(residuals)
        known = [*leaves, *_tensors(outputs)]
        places = {id(tensor): place for place, tensor in enumerate(known)}
        for tensor in _tensors(residuals):
            if id(tensor) not in places:
                places[id(tensor)] = len(known)
                known.append(tensor)
        call.places = [places[id(tensor)] for tensor in _tensors(residuals)]
        return tuple(known[len(leaves) :])

    @staticmethod
    def setup_context(ctx, inputs, output):
        call, *leaves = inputs
        known = [*leaves, *output]
        ctx.call, ctx.arity = call, len(leaves)
        ctx.save_for_backward(*leaves, *[known[k] for k in call.places])
        count = len(_tensors(call.outputs))
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
        if torch.is_grad_enabled() or not call.keep:
            # create_graph=True: the saved residuals carry no history, so
            # second derivatives need them computed again from the arguments.
            args = _fill(call.args, saved[: ctx.arity])
            _, residuals = call.reference(*args, keep=True)
            backward = call.reference_backward
        else:
            residuals = _fill(call.residuals, saved[ctx.arity :])
            backward = call.backward
        dense = [
            zeros() if cotangent is None else _dense(cotangent)
            for zeros, cotangent in zip(ctx.zeros, cotangents, strict=False)
        ]
        gradients = backward(residuals, _fill(call.outputs, dense))
        return None, *_gradients_of(call.args, gradients)


def _dense(cotangent):
    """The cotangent with all its zeros; embeddings may send sparse ones."""
    if cotangent.layout is torch.strided:
        return cotangent
    return cotangent.to_dense()


# Not keras.tree, whose functions torch.compile cannot look into everywhere.
def _map(function, structure, *others):
    """The structure of what the function makes of tensors; None stays."""
    if structure is None:
        return None
    if isinstance(structure, dict):
        return {
            key: _map(function, value, *[other[key] for other in others])
            for key, value in structure.items()
        }
    if isinstance(structure, list | tuple):
        items = [
            _map(function, *parts)
            for parts in zip(structure, *others, strict=True)
        ]
        return items if isinstance(structure, list) else tuple(items)
    return function(structure, *others)


def _tensors(structure):
    found: list = []
    _map(found.append, structure)
    return found


# The structure with 0 for a tensor.
_skeleton = functools.partial(_map, lambda tensor: 0)


def _fill(skeleton, tensors):
    """The structure with the first of the tensors in the places of zeros."""
    tensors = iter(tensors)
    return _map(lambda _: next(tensors), skeleton)


def _gradients_of(args, gradients):
    """One gradient, or None, per tensor of a structure of arguments."""
    if args is None:
        return []
    if isinstance(args, dict):
        keys = list(args)
    elif isinstance(args, list | tuple):
        keys = list(range(len(args)))
    else:
        return [gradients]
    return [
        gradient
        for key in keys
        for gradient in _gradients_of(
            args[key], None if gradients is None else gradients[key]
        )
    ]


def jacobian(function, x):
    """Derivative of every output in ``x``; see the package docstring."""
    return torch.autograd.functional.jacobian(function, x)
