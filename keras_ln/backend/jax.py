"""The backend contract on JAX."""

import jax
import jax.numpy as jnp

tanh = jnp.tanh
sigmoid = jax.nn.sigmoid
relu = jax.nn.relu
exp = jnp.exp
log = jnp.log
sqrt = jnp.sqrt
matmul = jnp.matmul


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return jnp.mean(x, axis=axis, keepdims=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return jnp.sum(x, axis=axis, keepdims=keepdims)


def on_cpu():
    """Whether programs run on a CPU; see the package docstring."""
    return jax.default_backend() == "cpu"


def fused_sum(x, axes, keepdims=False, weights=None):
    """``sum``; see the package docstring."""
    x = x if weights is None else x * weights
    return sum(x, axes, keepdims)


def scan(step, init, xs, *, reverse=False):
    """Loop over the leading axis of ``xs``; see the package docstring."""
    return jax.lax.scan(step, init, xs, reverse=reverse)


def custom_vjp(forward, backward):
    """An op with a hand-written VJP; see the package docstring."""

    def outputs_only(*args):
        return forward(*args)[0]

    op = jax.custom_vjp(outputs_only)
    op.defvjp(jax.jit(forward), jax.jit(backward))
    return jax.jit(op)


def jacobian(function, x):
    """Derivative of every output in ``x``; see the package docstring."""
    return jax.jacrev(function)(jnp.asarray(x))
