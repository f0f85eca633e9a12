"""``scan`` of the contract, on TensorFlow."""

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util

from keras_ln.backend.tensorflow.structures import (
    fill,
    has_tangents,
    tensor_or_none,
    tensors_in,
)


def scan(step, init, xs, *, reverse=False):
    """Loop over the leading axis of ``xs``; see the package docstring."""
    init = tf.nest.map_structure(tensor_or_none, init)
    xs = tf.nest.map_structure(tensor_or_none, xs)
    rows = tensors_in(xs)
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
        for y in tensors_in(y_spec)
    ]

    def body(i, carry, outputs):
        t = length - 1 - i if reverse else i
        x = fill(xs, [array.read(t) for array in inputs])
        carry, y = step(fill(init, carry), x)
        outputs = [
            array.write(t, leaf)
            for array, leaf in zip(outputs, tensors_in(y), strict=True)
        ]
        return i + 1, tensors_in(carry), outputs

    # The trip count stays known to XLA only in this form: a condition of
    # `t < T` makes a GPU ask the host at every step.
    _, carry, outputs = tf.while_loop(
        lambda *_: True,
        body,
        (0, tensors_in(init), outputs),
        maximum_iterations=length,
        parallel_iterations=1,
    )
    ys = fill(y_spec, [array.stack() for array in outputs])
    return fill(init, carry), ys


def _written_out_scan(step, init, xs, reverse):
    rows = tensors_in(xs)
    order = range(rows[0].shape[0])
    carry, ys = init, []
    for t in reversed(order) if reverse else order:
        carry, y = step(carry, fill(xs, [row[t] for row in rows]))
        ys.append(y)
    if reverse:
        ys.reverse()
    stacked = tf.nest.map_structure(
        lambda *leaves: None if leaves[0] is None else tf.stack(leaves), *ys
    )
    return carry, stacked


def _forward_mode(step, init, xs):
    """Whether a `tf.autodiff.ForwardAccumulator` in this graph sees a step."""
    rows = tensors_in(xs)
    if not forwardprop_util.pack_tangents(rows).indices:
        return False
    # Something that it watches may be known to the step alone.
    results = step(init, fill(xs, [row[0] for row in rows]))
    return has_tangents(tensors_in(results))


def _spec(x, row=False):
    if x is None:
        return None
    return tf.TensorSpec(x.shape[1:] if row else x.shape, x.dtype)
