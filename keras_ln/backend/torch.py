"""The backend contract on torch."""

import keras
import torch

# Keras does not export it (3.15), and to make a tensor takes longer.
from keras.src.backend.torch.core import get_device

tanh = torch.tanh
sigmoid = torch.sigmoid
relu = torch.relu
exp = torch.exp
log = torch.log
sqrt = torch.sqrt
matmul = torch.matmul


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return torch.mean(x, dim=axis, keepdim=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return torch.sum(x, dim=axis, keepdim=keepdims)


def on_cpu():
    """Whether tensors lie on a CPU; see the package docstring."""
    return get_device().startswith("cpu")


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


def custom_vjp(forward, backward):
    """An op with a hand-written VJP; see the package docstring."""

    def op(*args):
        # autograd.Function speaks flat tensors: the structures travel beside.
        structures = {"args": _skeleton(args)}
        leaves = keras.tree.flatten(args)
        flat = _Op.apply(forward, backward, structures, *leaves)
        return _pack(structures["outputs"], flat)

    return op


def _skeleton(structure):
    return keras.tree.map_structure(lambda leaf: 0, structure)


def _pack(skeleton, leaves):
    return keras.tree.pack_sequence_as(skeleton, list(leaves))


class _Op(torch.autograd.Function):
    """One call of an op made by ``custom_vjp``."""

    @staticmethod
    def forward(ctx, forward, backward, structures, *leaves):
        outputs, residuals = forward(*_pack(structures["args"], leaves))
        structures["outputs"] = _skeleton(outputs)
        structures["residuals"] = _skeleton(residuals)
        ctx.forward, ctx.backward = forward, backward
        ctx.structures, ctx.arity = structures, len(leaves)
        ctx.save_for_backward(*leaves, *keras.tree.flatten(residuals))
        return tuple(keras.tree.flatten(outputs))

    @staticmethod
    def backward(ctx, *cotangents):
        saved, structures = ctx.saved_tensors, ctx.structures
        args = _pack(structures["args"], saved[: ctx.arity])
        cotangents = _pack(structures["outputs"], cotangents)
        if torch.is_grad_enabled():
            # create_graph=True: the saved residuals carry no history, so
            # second derivatives need them computed again from the arguments.
            _, residuals = ctx.forward(*args)
        else:
            residuals = _pack(structures["residuals"], saved[ctx.arity :])
        gradients = ctx.backward(residuals, cotangents)
        flat = _flatten_gradients(gradients, structures["args"])
        return None, None, None, *flat


def _flatten_gradients(gradients, structure):
    """One leaf per leaf of ``structure``; ``None`` may stand for a subtree."""
    flat: list = []
    for gradient, arg in zip(gradients, structure, strict=True):
        leaves = keras.tree.flatten(arg)
        if gradient is None:
            flat.extend([None] * len(leaves))
        else:
            flat.extend(keras.tree.flatten(gradient))
    return flat


def jacobian(function, x):
    """Derivative of every output in ``x``; see the package docstring."""
    return torch.autograd.functional.jacobian(function, x)
