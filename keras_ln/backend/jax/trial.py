"""What the check of the GPU kernels needs from JAX."""

import os
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

_COMPILERS = ThreadPoolExecutor(min(4, os.cpu_count() or 1))


def use_format(format):
    """Sets it, in a process that is for the check alone."""
    asked = "highest" if format == "3xtf32" else None
    jax.config.update("jax_default_matmul_precision", asked)


def program(layer, x, options, cotangent=None, how=""):
    """A function that runs a layer, and waits: y, and gradients.

    A thread compiles it meanwhile.
    """
    x = jnp.asarray(x, layer.compute_dtype)
    weights = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]

    def call(weights, x):
        training = cotangent is not None
        given = (weights, others, x)
        return layer.stateless_call(*given, training=training, **options)[0]

    def both(weights, x):
        y, pull_back = jax.vjp(call, weights, x)
        slopes = pull_back(jnp.asarray(cotangent, y.dtype))
        return [y, *jax.tree.leaves(slopes)]

    chosen = both if cotangent is not None else lambda w, x: [call(w, x)]
    lowered = jax.jit(chosen).lower(weights, x)
    compiled = _COMPILERS.submit(lowered.compile)
    return lambda: jax.block_until_ready(compiled.result()(weights, x))


def numbers(tensor):
    """In float64, of NumPy."""
    return np.asarray(tensor, "float64")
