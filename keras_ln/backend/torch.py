"""The backend contract on torch."""

import functools

import keras
import torch

# Keras does not export it (3.15), and to make a tensor takes longer.
from keras.src.backend.torch.core import get_device
from torch.autograd import forward_ad

tanh = torch.tanh
sigmoid = torch.sigmoid
relu = torch.relu
exp = torch.exp
log = torch.log
sqrt = torch.sqrt
matmul = torch.matmul
where = torch.where


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return torch.mean(x, dim=axis, keepdim=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return torch.sum(x, dim=axis, keepdim=keepdims)


def on_cpu():
    """Whether tensors lie on a CPU; see the package docstring."""
    return get_device().startswith("cpu")


def reads_python():
    """Whether torch.compile or torch.export is at work."""
    return torch.compiler.is_compiling()


def fused_sum(x, axes, keepdims=False, weights=None):
    """``sum``; see the package docstring."""
    x = x if weights is None else x * weights
    # torch takes no axes for all of them.
    return sum(x, axes, keepdims) if axes else x


def scan(step, init, xs, *, reverse=False):
    """Loop over the leading axis of ``xs``; see the package docstring."""
    flat = keras.tree.flatten(xs)
    length = next(x.shape[0] for x in flat if x is not None)
    order = range(length - 1, -1, -1) if reverse else range(length)
    carry, rows = init, []
    for t in order:
        x = keras.tree.map_structure(
            lambda leaf, t=t: None if leaf is None else leaf[t], xs
        )
        carry, y = step(carry, x)
        rows.append(y)
    if reverse:
        rows.reverse()
    ys = keras.tree.map_structure(
        lambda *leaves: None if leaves[0] is None else torch.stack(leaves),
        *rows,
    )
    return carry, ys


def custom_vjp(forward, backward, reference=None):
    """An op with a hand-written VJP; see the package docstring."""
    reference = reference or forward

    def op(*args):
        if _wants_plain_operations():
            return reference(*args)[0]
        call = _Call(forward, backward, reference, _skeleton(args))
        results = _Op.apply(call, *_tensors(args))
        return _fill(call.outputs, results)

    return op


def _wants_plain_operations():
    """Where torch cannot follow a function with a gradient of its own.

    Traces are such, and forward mode, which shows by the level of its dual
    numbers; torch exports no question about it (2.13).
    """
    return (
        reads_python()
        or torch.jit.is_tracing()
        or forward_ad._current_level >= 0
    )


class _Call:
    """What a call of an op has beside tensors: functions and structures.

    autograd.Function speaks flat tensors. It hands an object like this on as
    it is, other than a dictionary, which torch.func copies.
    """

    def __init__(self, forward, backward, reference, args):
        """A call with arguments of the structure `args`."""
        self.forward, self.backward = forward, backward
        self.reference, self.args = reference, args
        self.outputs = self.residuals = None
        # Where the residuals are among the arguments and the results.
        self.places: list[int] = []


class _Op(torch.autograd.Function):
    """One call of an op made by ``custom_vjp``."""

    # torch.func.vmap runs the methods below under vmap.
    generate_vmap_rule = True

    @staticmethod
    def forward(call, *leaves):
        outputs, residuals = call.forward(*_fill(call.args, leaves))
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
        if torch.is_grad_enabled():
            # create_graph=True: the saved residuals carry no history, so
            # second derivatives need them computed again from the arguments.
            args = _fill(call.args, saved[: ctx.arity])
            _, residuals = call.reference(*args)
        else:
            residuals = _fill(call.residuals, saved[ctx.arity :])
        dense = [
            zeros() if cotangent is None else _dense(cotangent)
            for zeros, cotangent in zip(ctx.zeros, cotangents, strict=False)
        ]
        gradients = call.backward(residuals, _fill(call.outputs, dense))
        return None, *_flatten_gradients(gradients, call.args)


def _dense(cotangent):
    """The cotangent with all its zeros; embeddings may send sparse ones."""
    if cotangent.layout is torch.strided:
        return cotangent
    return cotangent.to_dense()


def _tensors(structure):
    return [leaf for leaf in keras.tree.flatten(structure) if leaf is not None]


def _skeleton(structure):
    """The structure with 0 for a tensor."""
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else 0, structure
    )


def _fill(skeleton, tensors):
    """The structure with the first of the tensors in the places of zeros."""
    tensors = iter(tensors)
    leaves = [
        None if leaf is None else next(tensors)
        for leaf in keras.tree.flatten(skeleton)
    ]
    return keras.tree.pack_sequence_as(skeleton, leaves)


def _flatten_gradients(gradients, args):
    """One gradient, or None, per tensor of `args`."""
    flat: list = []
    for gradient, arg in zip(gradients, args, strict=True):
        leaves = keras.tree.flatten(arg)
        given = [None] * len(leaves)
        if gradient is not None:
            given = keras.tree.flatten(gradient)
        flat.extend(
            g for g, x in zip(given, leaves, strict=True) if x is not None
        )
    return flat


def jacobian(function, x):
    """Derivative of every output in ``x``; see the package docstring."""
    return torch.autograd.functional.jacobian(function, x)
