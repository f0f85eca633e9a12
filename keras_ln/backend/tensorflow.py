"""The backend contract on TensorFlow."""

import functools
import operator

import keras
import tensorflow as tf

# TensorFlow exports no way to ask for its forward mode (2.21).
from tensorflow.python.eager import forwardprop_util

tanh = tf.tanh
sigmoid = tf.sigmoid
relu = tf.nn.relu
exp = tf.exp
log = tf.math.log
sqrt = tf.sqrt
where = keras.ops.where


def matmul(a, b):
    """``a @ b`` over the last axis of ``a``; ``b`` is a matrix."""
    # tf.matmul would broadcast the matrix over the leading axes of `a`, and
    # the gradient of tf.tensordot does not compile inside a loop.
    if len(a.shape) == 2:
        return tf.matmul(a, b)
    rows = tf.matmul(tf.reshape(a, (-1, b.shape[0])), b)
    return tf.reshape(
        rows, tf.concat((tf.shape(a)[:-1], tf.shape(rows)[1:]), 0)
    )


def mean(x, axis=None, keepdims=False):
    """Mean over ``axis``, in the dtype of ``x``."""
    return tf.reduce_mean(x, axis=axis, keepdims=keepdims)


def sum(x, axis=None, keepdims=False):
    """Sum over ``axis``, in the dtype of ``x``."""
    return tf.reduce_sum(x, axis=axis, keepdims=keepdims)


def how_to_densify(x):
    """What to call, or None; see the package docstring."""
    if isinstance(x, tf.RaggedTensor):
        return (
            "Call its to_tensor(), and hand over "
            "tf.sequence_mask(x.row_lengths()) as the mask where there is one."
        )
    if isinstance(x, tf.SparseTensor):
        return "Call tf.sparse.to_dense with it."
    return None


def on_cpu():
    """Whether there is no other device; see the package docstring."""
    kinds = {d.device_type for d in tf.config.get_visible_devices()}
    return kinds == {"CPU"}


def reads_python():
    """Never: see the package docstring."""
    return False


def fused_sum(x, axes, keepdims=False, weights=None):
    """``sum``, in a form that XLA:CPU fuses with the making of ``x``."""
    rank = len(x.shape)
    leading = axes == tuple(range(len(axes)))
    trailing = axes == tuple(range(rank - len(axes), rank))
    # XLA:CPU writes the terms of a reduction to memory first; those of a
    # product with a vector, and of a sum of slices, it computes on the way.
    # Other devices fuse reductions, and may round the factors of a product.
    if weights is not None and not (on_cpu() and trailing):
        x, weights = x * weights, None
    if not on_cpu() or not (leading or trailing):
        return sum(x, axes, keepdims)
    dynamic = tf.shape(x)
    sizes = [n or dynamic[a] for a, n in enumerate(x.shape.as_list())]
    kept = [n for a, n in enumerate(sizes) if a not in axes]
    count, rest = _product(sizes[a] for a in axes), _product(kept)
    if trailing:
        if weights is None:
            weights = tf.ones([count], x.dtype)
        weights = tf.reshape(weights, [count, 1])
        total = tf.matmul(tf.reshape(x, [rest, count]), weights)
    else:
        total = _sum_of_rows(tf.reshape(x, [count, rest]), count)
    if keepdims:
        kept = [1 if a in axes else n for a, n in enumerate(sizes)]
    return tf.reshape(total, kept)


def _product(sizes):
    return functools.reduce(operator.mul, sizes, 1)


def _sum_of_rows(x, rows, blocks=8):
    # More than eight blocks XLA:CPU does not fuse.
    size = rows // blocks
    parts = [x[i * size : (i + 1) * size] for i in range(blocks)]
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    rest = x[blocks * size :]
    return tf.reduce_sum(parts[0], 0) + tf.reduce_sum(rest, 0)


def scan(step, init, xs, *, reverse=False):
    """Loop over the leading axis of ``xs``; see the package docstring."""
    init = tf.nest.map_structure(_tensor_or_none, init)
    xs = tf.nest.map_structure(_tensor_or_none, xs)
    rows = _leaves(xs)
    length = rows[0].shape[0]
    if tf.executing_eagerly():
        return _written_out_scan(step, init, xs, reverse)
    if _forward_mode(step, init, xs):
        # Which does not get through a loop over TensorArrays.
        if length is None:
            raise ValueError(
                "Forward-mode derivatives inside a tf.function need a known "
                "number of time steps. Received: sequences of unknown length. "
                "Give the function an input_signature with it, or call the "
                "layer outside of a tf.function."
            )
        return _written_out_scan(step, init, xs, reverse)
    if length is None:
        length = tf.shape(rows[0])[0]

    # TensorArrays want to know what they will hold before the loop runs.
    carry_spec = tf.nest.map_structure(_spec, init)
    row_spec = tf.nest.map_structure(lambda x: _spec(x, row=True), xs)
    traced = tf.function(step, autograph=False).get_concrete_function(
        carry_spec, row_spec
    )
    _, y_spec = traced.structured_outputs

    inputs = [
        tf.TensorArray(x.dtype, length, element_shape=x.shape[1:]).unstack(x)
        for x in rows
    ]
    outputs = [
        tf.TensorArray(y.dtype, length, element_shape=y.shape)
        for y in _leaves(y_spec)
    ]

    def body(i, carry, outputs):
        t = length - 1 - i if reverse else i
        x = _fill(xs, [array.read(t) for array in inputs])
        carry, y = step(_fill(init, carry), x)
        outputs = [
            array.write(t, leaf)
            for array, leaf in zip(outputs, _leaves(y), strict=True)
        ]
        return i + 1, _leaves(carry), outputs

    # The trip count stays known to XLA only in this form: a condition of
    # `t < T` makes a GPU ask the host at every step.
    _, carry, outputs = tf.while_loop(
        lambda *_: True,
        body,
        (0, _leaves(init), outputs),
        maximum_iterations=length,
        parallel_iterations=1,
    )
    ys = _fill(y_spec, [array.stack() for array in outputs])
    return _fill(init, carry), ys


def _written_out_scan(step, init, xs, reverse):
    rows = _leaves(xs)
    order = range(rows[0].shape[0])
    carry, ys = init, []
    for t in reversed(order) if reverse else order:
        carry, y = step(carry, _fill(xs, [row[t] for row in rows]))
        ys.append(y)
    if reverse:
        ys.reverse()
    stacked = tf.nest.map_structure(
        lambda *leaves: None if leaves[0] is None else tf.stack(leaves), *ys
    )
    return carry, stacked


def _tensor_or_none(x):
    return None if x is None else tf.convert_to_tensor(x)


def _constant(x):
    return None if x is None else tf.stop_gradient(x)


def _forward_mode(step, init, xs):
    """Whether a `tf.autodiff.ForwardAccumulator` in this graph sees a step."""
    rows = _leaves(xs)
    if not forwardprop_util.pack_tangents(rows).indices:
        return False
    # Something that it watches may be known to the step alone.
    results = step(init, _fill(xs, [row[0] for row in rows]))
    return _has_tangents(_leaves(results))


def _has_tangents(tensors):
    return bool(forwardprop_util.pack_tangents(tensors).tangents)


def _spec(x, row=False):
    if x is None:
        return None
    return tf.TensorSpec(x.shape[1:] if row else x.shape, x.dtype)


def _fill(structure, leaves):
    """``structure`` with its leaves replaced, those that are None kept."""
    leaves = iter(leaves)
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else next(leaves), structure
    )


def custom_vjp(forward, backward, reference=None):
    """An op with a hand-written VJP; see the package docstring."""
    reference = reference or forward

    def again(args, cotangents):
        residuals = reference(*args, keep=True)[1]
        return backward(residuals, cotangents)

    def outputs_only(*args):
        return reference(*args, keep=False)[0]

    def without_residuals(*args):
        return forward(*args, keep=False)[0], args

    # Whether a tape records is for TensorFlow alone to know (2.21): its public
    # functions do not tell, and a tape may look into a function long after it
    # was traced.
    keeping = _differentiable(
        functools.partial(forward, keep=True), backward, again, outputs_only
    )
    lean = _differentiable(without_residuals, again, again, outputs_only)

    def op(*args, keep=True):
        return (keeping if keep else lean)(*args)

    return op


def _differentiable(forward, backward, again, outputs_only):
    """An op whose gradient is ``backward``, and its gradient that of ``again``.

    ``again(args, cotangents)`` computes what ``backward`` does, from the
    arguments alone, and ``outputs_only(*args)`` the outputs, both
    differentiable by plain autodiff.
    """
    # Keras leaves XLA off by itself in several common situations (CPU-only
    # machines, tf.distribute, op determinism), hence functions of our own.

    @functools.partial(tf.function, autograph=False)
    def compiled_forward(*args):
        trace = {}

        def new_tensors(*inside):
            outputs, residuals = forward(*inside)
            args = tf.nest.flatten(inside)
            index = {id(arg): i for i, arg in enumerate(args)}
            flat = tf.nest.flatten(residuals)
            trace["residuals"] = residuals
            trace["index"] = [index.get(id(leaf)) for leaf in flat]
            return outputs, [leaf for leaf in flat if id(leaf) not in index]

        outputs, new = tf.function(
            new_tensors, jit_compile=True, autograph=False
        )(*args)
        # Derivatives of higher order would look for a way through here.
        outputs, new = tf.nest.map_structure(_constant, (outputs, new))
        # XLA would copy a residual that is an argument: it stays outside.
        args, new = tf.nest.flatten(args), iter(new)
        flat = [next(new) if i is None else args[i] for i in trace["index"]]
        return outputs, tf.nest.pack_sequence_as(trace["residuals"], flat)

    compiled_backward = tf.function(backward, jit_compile=True, autograph=False)

    # A function, because TensorFlow's forward mode does not get through a
    # custom gradient in the gradient of another one (2.21).
    @functools.partial(tf.function, autograph=False)
    def vjp(args, residuals, cotangents):
        """``backward``, made differentiable in args and cotangents."""
        box = {}

        @tf.custom_gradient
        def first_order(*leaves):
            # Residuals carry no history: second derivatives compute them
            # again from the arguments, by plain autodiff of both functions.
            _, c = _fill((args, cotangents), leaves)
            constants = tf.nest.map_structure(_constant, c)
            gradients = _dense(compiled_backward(residuals, constants), args)
            box["gradients"] = gradients

            def second_order(*upstream):
                inside = [tf.identity(leaf) for leaf in leaves]

                def outputs_of(*inside):
                    given, c = _fill((args, cotangents), inside)
                    return _leaves(_dense(again(given, c), given))

                return _gradients(outputs_of, inside, upstream)

            return _leaves(gradients), second_order

        flat = first_order(*_leaves((args, cotangents)))
        return _fill(box["gradients"], tf.nest.flatten(flat))

    def op(*args):
        args = tf.nest.map_structure(_tensor_or_none, args)
        if _has_tangents(_leaves(args)):
            # What forward mode makes of a custom gradient is None, or zero.
            return outputs_only(*args)
        box = {}

        @tf.custom_gradient
        def call(*leaves):
            # A tape that records inside a compiled function fails on the
            # loop's TensorLists; there is nothing in it to record.
            constants = _fill(args, map(_constant, leaves))
            outputs, residuals = compiled_forward(*constants)
            box["outputs"] = outputs

            def gradient(*cotangents):
                dense = _densified(cotangents, _leaves(outputs))
                return vjp(
                    _fill(args, leaves), residuals, _fill(outputs, dense)
                )

            return _leaves(outputs), gradient

        flat = call(*_leaves(args))
        return _fill(box["outputs"], tf.nest.flatten(flat))

    return tf.autograph.experimental.do_not_convert(op)


def _gradients(function, leaves, cotangents):
    """Gradients of ``function(*leaves)``, by plain autodiff."""
    if tf.executing_eagerly():  # After tf.config.run_functions_eagerly.
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            outputs = function(*leaves)
        differentiate = tape.gradient
    else:
        outputs, differentiate = function(*leaves), tf.gradients
    return differentiate(outputs, leaves, _densified(cotangents, outputs))


def _leaves(structure):
    return [x for x in tf.nest.flatten(structure) if x is not None]


def _densified(cotangents, outputs):
    """The cotangents as tensors; gathers send `tf.IndexedSlices`."""

    # Not by tf.convert_to_tensor, which warns of what a tensor takes: the
    # output is one already.
    def dense(cotangent, output):
        if not isinstance(cotangent, tf.IndexedSlices):
            return cotangent
        rows = output.shape[0] or tf.shape(output)[0]
        return tf.math.unsorted_segment_sum(
            cotangent.values, cotangent.indices, rows
        )

    return list(map(dense, cotangents, outputs))


def _dense(gradients, args):
    """A flat list with one gradient per tensor in ``args``."""
    flat: list = []
    for gradient, arg in zip(gradients, args, strict=True):
        leaves = tf.nest.flatten(arg)
        if gradient is None:
            gradients_of_arg = [None] * len(leaves)
        else:
            gradients_of_arg = tf.nest.flatten(gradient)
        flat.extend(
            g
            for g, leaf in zip(gradients_of_arg, leaves, strict=True)
            if leaf is not None
        )
    return flat


def jacobian(function, x):
    """Derivative of every output in ``x``; see the package docstring."""

    @tf.function(autograph=False)
    def differentiate(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.convert_to_tensor(function(x))
        # Without a need, a loop over time would be vectorised too.
        derive = tape.jacobian if y.shape.rank else tape.gradient
        return derive(y, x, unconnected_gradients="zero")

    # Called directly, the function would warn of tracing, as a new one does.
    return differentiate.get_concrete_function(x)(x)
