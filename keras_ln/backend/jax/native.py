"""Calls of keras-ln-kernels on JAX arrays, as custom calls of XLA."""

import functools
import importlib.util
import itertools

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from keras_ln._keras import exporter
from keras_ln.backend import native

# Once in jax.core; test_random_numbers_in_a_loop notices.
trace_state = (
    getattr(jax.extend.core, "get_opaque_trace_state", None)
    or jax.core.get_opaque_trace_state
)
# Of the parameters of a lowering: whether the program leaves the process.
_EXPORTED = "for_export"


@native.once
def _registered():
    """None after XLA has registered the calls, or why it cannot."""
    from keras_ln_kernels import xla

    return xla.unsupported_reason() or register(
        dict(zip(native.TARGETS.values(), xla.handlers(), strict=True)), "cpu"
    )


def register(handlers, platform):
    """Tells XLA of handlers by name; None, or why that cannot be."""
    if importlib.util.find_spec("jax.ffi") is None:
        return f"JAX {jax.__version__} has no jax.ffi."
    if not hasattr(mlir.LoweringParameters, _EXPORTED):
        return f"JAX {jax.__version__} does not tell what it exports."
    importlib.import_module("jax.ffi")  # Not there by itself before 0.5.
    for target, handler in handlers.items():
        jax.ffi.register_ffi_target(
            target, jax.ffi.pycapsule(handler), platform=platform
        )
    return None


# What is being traced where nothing is.
_EAGER = trace_state("keras_ln")


def is_exported():
    # What `jax.export` writes is decided by `with_kernels`.
    return trace_state("keras_ln") != _EAGER and exporter() is not None


reason = native.reason_with(_registered)


def call_native(call, arrays):
    from keras_ln_kernels import xla

    given = [jnp.asarray(arrays[name]) for name in call.arguments]
    sizes = call.sizes(
        {n: a.shape for n, a in zip(call.arguments, given, strict=True)}
    )
    wanted = [(call.shape(n, sizes), call.dtype_of(n)) for n in call.results]
    target = native.TARGETS[call.backward]
    results = custom_call(target, xla.attributes(call), given, wanted)
    return dict(zip(call.results, results, strict=True))


def custom_call(target, attributes, given, wanted):
    """The results, of these shapes and dtypes, of a call by XLA's name."""
    kind = kind_of(given[0])
    results = [jax.ShapeDtypeStruct(*each, **kind) for each in wanted]
    numbers = {
        name: (np.float64 if isinstance(value, float) else np.int64)(value)
        for name, value in attributes.items()
    }
    run = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    return run(*given, **numbers)


def kind_of(x):
    """The kind of the results: in jax.shard_map they differ where `x` does."""
    if not hasattr(jax, "typeof"):  # Before JAX 0.5.3.
        return {}
    kind = jax.typeof(x)
    manual = getattr(kind, "manual_axis_type", None)
    if manual is None or not manual.varying:
        return {}
    mesh = jax.sharding.NamedSharding(kind.sharding.mesh, jax.P())
    return {"sharding": mesh, "manual_axis_type": manual}


def with_kernels(function, otherwise, platform="cpu"):
    """`function` in programs for a platform that stay in this process.

    In all others `otherwise`, which must return the same shapes. The choice is
    made when a program is lowered: one that was traced before `jax.export`
    saw it needs no kernels either.
    """

    def chosen(*args):
        flat, tree = jax.tree.flatten(args)

        def of_leaves(function):
            def run(*flat):
                return function(*jax.tree.unflatten(tree, flat))

            return jax.make_jaxpr(run, return_shape=True)(*flat)

        here, shapes = of_leaves(function)
        elsewhere, _ = of_leaves(otherwise)
        results = _choice.bind(
            *flat, here=here, elsewhere=elsewhere, platform=platform
        )
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return chosen


_choice = Primitive("keras_ln_choice")
_choice.multiple_results = True
_choice.def_abstract_eval(lambda *_, here, **others: here.out_avals)


@_choice.def_impl
def _run(*args, **choice):
    # Reached under `jax.disable_jit` alone.
    with jax.disable_jit(False):
        return jax.jit(functools.partial(_choice.bind, **choice))(*args)


def _lower(ctx, *args, here, elsewhere, platform):
    module = ctx.module_context
    stays = not getattr(module.lowering_parameters, _EXPORTED)
    platforms = tuple(ctx.platforms or module.platforms)
    jaxpr = here if stays and platforms == (platform,) else elsewhere
    lower = mlir.lower_fun(jaxpr_as_fun(jaxpr), multiple_results=True)
    return lower(ctx, *args)


def _batch(args, axes, *, platform, **jaxprs):
    for name, jaxpr in jaxprs.items():
        mapped = jax.vmap(jaxpr_as_fun(jaxpr), axes)
        jaxprs[name] = jax.make_jaxpr(mapped)(*args)
    results = _choice.bind(*args, platform=platform, **jaxprs)
    return results, [0] * len(results)


def _differentiate(args, tangents, *, here, elsewhere, platform):
    """The tangents of `elsewhere`, for results that are floating point."""
    places = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]
    kinds = [kind.to_tangent_aval() for kind in here.out_avals]
    smooth = [jnp.issubdtype(kind.dtype, jnp.inexact) for kind in kinds]

    def run(*moved):
        values = dict(enumerate(args)) | dict(zip(places, moved, strict=True))
        found = jaxpr_as_fun(elsewhere)(*values.values())
        return list(itertools.compress(found, smooth))

    _, found = jax.jvp(
        run, [args[i] for i in places], [tangents[i] for i in places]
    )
    rest = iter(found)
    jaxprs = {"here": here, "elsewhere": elsewhere}
    return _choice.bind(*args, platform=platform, **jaxprs), [
        next(rest) if moves else ad.Zero(kind)
        for kind, moves in zip(kinds, smooth, strict=True)
    ]


mlir.register_lowering(_choice, _lower)
ad.primitive_jvps[_choice] = _differentiate
batching.primitive_batchers[_choice] = _batch
