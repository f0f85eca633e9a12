"""The backend contract on JAX."""

import functools

import jax
import jax.numpy as jnp
import keras

from keras_ln.backend import TraceContext
from keras_ln.backend.jax.native import trace_state, with_kernels

tanh = jnp.tanh
sigmoid = jax.nn.sigmoid
relu = jax.nn.relu
exp = jnp.exp
log = jnp.log
sqrt = jnp.sqrt
matmul = jnp.matmul
reshape = jnp.reshape
transpose = jnp.transpose
cast = keras.ops.cast
where = jnp.where
# Steps that a GPU takes per iteration of a loop: each iteration copies the
# carry, and launches the kernel that counts.
_STEPS_ON_A_GPU = 4
_NO_FORWARD_MODE = (
    "{} has no forward-mode derivatives (jax.jvp, jax.jacfwd, jax.linearize) "
    "on JAX, because its hand-written gradient is a jax.custom_vjp. Run it "
    "inside `with keras_ln.ops.portable():`, or, if it has the argument "
    "`use_fused`, make it with use_fused=False."
)


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return jnp.mean(x, axis=axis, keepdims=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return jnp.sum(x, axis=axis, keepdims=keepdims)


def how_to_densify(x):
    # BCOO and its like, whose module takes long to import.
    return "Call its todense()." if hasattr(x, "todense") else None


def on_cpu():
    return jax.default_backend() == "cpu"


def trace_context(arrays):
    # Of forward mode JAX does not tell.
    return TraceContext(on_cpu=on_cpu())


def once_all(conditions, x, message):
    return x


def stands_for_unknown(length):
    return False


def current_trace():
    return trace_state("keras_ln")


def fused_sum(x, axes, keepdims=False, weights=None):
    x = x if weights is None else x * weights
    return sum(x, axes, keepdims)


def scan(step, init, xs, *, reverse=False):
    # Within jax.shard_map the first carry must have the type of the others.
    init = _vary(init, _varying((init, xs)))
    if _mesh_is_explicit():
        init = _sharded_alike(step, init, xs)
    unroll = _STEPS_ON_A_GPU if jax.default_backend() == "gpu" else 1
    length = next(iter(xs.values())).shape[0]
    if type(length) is int and length == 1:  # In exports it may be a symbol.
        # One step needs no loop, which converters would write as one.
        carry, y = step(init, {name: x[0] for name, x in xs.items()})
        return carry, {name: row[None] for name, row in y.items()}
    return jax.lax.scan(step, init, xs, reverse=reverse, unroll=unroll)


def _mesh_is_explicit():
    """Whether types tell how arrays are sharded, as with `jax.make_mesh`."""
    # Older versions cannot shard arrays over such axes;
    # test_shard_map_and_explicit_mesh notices.
    if not hasattr(jax.sharding, "reshard"):
        return False
    mesh = jax.sharding.get_abstract_mesh()
    return jax.sharding.AxisType.Explicit in (mesh.axis_types or ())


def _sharded_alike(step, init, xs):
    """The first carry, for example zeros, sharded like a step's new carry."""
    carry, _ = jax.eval_shape(
        lambda init, xs: step(init, jax.tree.map(lambda x: x[0], xs)), init, xs
    )
    return jax.tree.map(
        lambda x, new: jax.sharding.reshard(x, new.sharding), init, carry
    )


def _varying(arrays):
    """The axes of `jax.shard_map`'s mesh along which any array differs."""
    axes: set = set()
    for array in jax.tree.leaves(arrays):
        axes.update(_axes_of(array))
    return axes


def _axes_of(array):
    # `jax.shard_map`, and types that know of it, came in 0.6; since 0.10 types
    # have `manual_axis_type` instead of `vma`.
    # test_shard_map_in_versions notices.
    kind = jax.typeof(array) if hasattr(jax, "typeof") else None
    manual = getattr(kind, "manual_axis_type", None)
    return manual.varying if manual else getattr(kind, "vma", ())


def _vary(arrays, axes):
    """The arrays, with types that say that they differ along the axes.

    The gradient of an array that did not differ is summed over the axes.
    """

    def vary(array):
        more = tuple(axes - _varying(array))
        if hasattr(jax.lax, "pcast"):
            return jax.lax.pcast(array, more, to="varying")
        return jax.lax.pvary(array, more)  # Before 0.8.

    return jax.tree.map(vary, arrays) if axes else arrays


def custom_vjp(
    forward,
    backward,
    reference=None,
    compiled=True,
    reference_backward=None,
    platform="cpu",
):
    def outputs_only(arrays):
        return forward(arrays, keep=False)[0]

    first, second = functools.partial(forward, keep=True), backward
    # JAX differentiates the rule itself.
    if reference_backward is not None:
        outputs_only, first, second = _for_kernels(
            (forward, backward), reference, reference_backward, platform
        )
    elif reference is not None:
        again = functools.partial(reference, keep=True)
        first = jax.custom_jvp(first)
        first.defjvp(
            lambda primals, tangents: jax.jvp(again, primals, tangents)
        )

    def first_half(arrays):
        outputs, residuals = first(arrays)
        return outputs, (residuals, dict.fromkeys(arrays))

    def second_half(kept, cotangents):
        residuals, names = kept
        # None stays for arrays without a gradient.
        return (names | second(residuals, cotangents),)

    vjp = jax.custom_vjp(outputs_only)
    # The rule's first half runs only under differentiation.
    vjp.defvjp(jax.jit(first_half), jax.jit(second_half))
    # A gradient must have the type of its argument, even if some of the
    # arguments differ between the devices of jax.shard_map.
    jitted = jax.jit(lambda arrays: vjp(_vary(arrays, _varying(arrays))))

    def op(arrays, keep=True, owner="An op of keras_ln"):
        try:
            return spread(arrays)
        except (TypeError, NotImplementedError) as error:
            # The op's gradient raises the second. If the call was linearized or
            # jitted before, JAX raises its own error, outside of this call.
            if not any(s in str(error) for s in ("forward-mode", "custom_lin")):
                raise
            raise TypeError(_NO_FORWARD_MODE.format(owner)) from error

    def spread(arrays):
        if not _mesh_is_explicit():
            return jitted(arrays)
        # A custom_vjp does not say how its arrays are sharded: XLA decides
        # about all except the outputs.
        made = jax.eval_shape(outputs_only, arrays)
        shardings = jax.tree.map(lambda y: y.sharding, made)
        run = jax.sharding.auto_axes(jitted, out_sharding=shardings)
        return run(arrays)

    return op


def _for_kernels(native, reference, reference_backward, platform):
    """The three functions of an op that runs the reference without kernels.

    The kernels' residuals do not fit the reference: they have no derivatives.
    So the arrays are kept with them.
    """
    forward, backward = native
    choose = functools.partial(with_kernels, platform=platform)

    def outputs_of(arrays):
        return reference(arrays, keep=False)[0]

    def gradients_of(arrays, cotangents):
        residuals = reference(arrays, keep=True)[1]
        return reference_backward(residuals, cotangents)

    @functools.partial(choose, otherwise=outputs_of)
    def outputs_only(arrays):
        return forward(arrays, keep=False)[0]

    def keeping(arrays):
        return forward(arrays, keep=True)

    def keeping_nothing(arrays):
        _, shapes = jax.eval_shape(keeping, arrays)
        residuals = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return outputs_of(arrays), _vary(residuals, _varying(arrays))

    def first(arrays):
        outputs, residuals = choose(keeping, keeping_nothing)(arrays)
        return outputs, (residuals, arrays)

    def second(residuals, cotangents):
        kept, arrays = residuals
        run = choose(
            lambda kept, arrays, cotangents: backward(kept, cotangents),
            lambda kept, *others: gradients_of(*others),
        )
        return run(kept, arrays, cotangents)

    return outputs_only, first, second


def jacobian(function, x):
    return jax.jacrev(function)(jnp.asarray(x))
