"""The backend contract on TensorFlow."""

import functools
import operator

import keras
import tensorflow as tf

from keras_ln.backend import TraceContext
from keras_ln.backend.tensorflow.gradients import custom_vjp as custom_vjp
from keras_ln.backend.tensorflow.gradients import jacobian as jacobian
from keras_ln.backend.tensorflow.loops import scan as scan
from keras_ln.backend.tensorflow.structures import plain_operations_reason

tanh = tf.tanh
sigmoid = tf.sigmoid
relu = tf.nn.relu
exp = tf.exp
log = tf.math.log
sqrt = tf.sqrt
mean = tf.reduce_mean
sum = tf.reduce_sum
reshape = tf.reshape
transpose = tf.transpose
cast = keras.ops.cast
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


def how_to_densify(x):
    if isinstance(x, tf.RaggedTensor):
        return (
            "Call its to_tensor(), and pass tf.sequence_mask(x.row_lengths()) "
            "if there is an argument `mask`."
        )
    if isinstance(x, tf.SparseTensor):
        return "Call tf.sparse.to_dense with it."
    return None


def on_cpu():
    kinds = {d.device_type for d in tf.config.get_visible_devices()}
    return kinds == {"CPU"}


def trace_context(arrays):
    return TraceContext(plain_operations_reason(arrays), on_cpu=on_cpu())


def once_all(conditions, x, message):
    holds = tf.reduce_all(tf.stack(conditions))
    with tf.control_dependencies([tf.debugging.Assert(holds, message)]):
        return tf.identity(x)


def stands_for_unknown(length):
    return False


def current_trace():
    """None: see the package docstring."""


def fused_sum(x, axes, keepdims=False, weights=None):
    """``sum``, in a form that XLA:CPU fuses with the computation of ``x``."""
    rank = len(x.shape)
    leading = axes == tuple(range(len(axes)))
    trailing = axes == tuple(range(rank - len(axes), rank))
    # XLA:CPU writes the terms of a reduction to memory first; it computes the
    # terms of a product with a vector, and of a sum of slices, on the way.
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
    # XLA:CPU does not fuse more than eight blocks.
    size = rows // blocks
    parts = [x[i * size : (i + 1) * size] for i in range(blocks)]
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    rest = x[blocks * size :]
    return tf.reduce_sum(parts[0], 0) + tf.reduce_sum(rest, 0)
