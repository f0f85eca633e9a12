"""Calls of keras-ln-kernels on JAX arrays, as custom calls of XLA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from keras_ln._keras import is_exporting
from keras_ln.backend import native


def reason():
    """Why kernels cannot be called; see the package docstring."""
    return native.reason() or _registered()


@functools.cache
def _registered():
    """None once XLA knows the kernels, or why it cannot."""
    from keras_ln_kernels import xla

    if (wrong := xla.unsupported_reason()) is not None:
        return wrong
    for target, handler in zip(
        native.TARGETS.values(), xla.handlers(), strict=True
    ):
        jax.ffi.register_ffi_target(
            target, jax.ffi.pycapsule(handler), platform="cpu"
        )
    return None


def is_exported():
    """Whether programs leave the process; see the package docstring."""
    # `jax.export` names the kernels in an error of its own.
    return is_exporting()


def call_native(call, arrays):
    """Runs a call; see the package docstring."""
    from keras_ln_kernels import xla

    given = [jnp.asarray(arrays[name]) for name in call.arguments]
    x = given[0]
    sizes = call.sizes(
        {n: a.shape for n, a in zip(call.arguments, given, strict=True)}
    )
    kind = _kind(x)
    results = [
        jax.ShapeDtypeStruct(
            call.shape(name, sizes),
            jnp.uint8 if name == "residuals" else x.dtype,
            **kind,
        )
        for name in call.results
    ]
    run = jax.ffi.ffi_call(
        native.TARGETS[call.backward], results, vmap_method="sequential"
    )
    attributes = {
        name: (np.float64 if isinstance(value, float) else np.int64)(value)
        for name, value in xla.attributes(call).items()
    }
    return dict(zip(call.results, run(*given, **attributes), strict=True))


def _kind(x):
    """Of a result: within jax.shard_map it differs where `x` does."""
    kind = jax.typeof(x)
    manual = getattr(kind, "manual_axis_type", None)
    if manual is None or not manual.varying:
        return {}
    mesh = jax.sharding.NamedSharding(kind.sharding.mesh, jax.P())
    return {"sharding": mesh, "manual_axis_type": manual}
