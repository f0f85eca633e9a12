"""``scan`` of the contract, on TensorFlow."""

import tensorflow as tf
from tensorflow.python.eager import forwardprop_util

from keras_ln.backend.tensorflow.structures import has_tangents


def scan(step, init, xs, *, reverse=False):
    init = {name: tf.convert_to_tensor(x) for name, x in init.items()}
    xs = {name: tf.convert_to_tensor(x) for name, x in xs.items()}
    first = next(iter(xs.values()))
    length = first.shape[0]
    # One step needs no loop, which LiteRT could not run.
    if tf.executing_eagerly() or length == 1:
        return _written_out_scan(step, init, xs, reverse)
    if _forward_mode(step, init, xs):
        # Forward mode does not get through a loop over TensorArrays.
        if length is None:
            raise ValueError(
                "Forward-mode derivatives inside a tf.function need a known "
                "number of time steps. Received: sequences of unknown length. "
                "Give the function an input_signature with that number, or "
                "call the layer outside of a tf.function."
            )
        return _written_out_scan(step, init, xs, reverse)
    if length is None:
        length = tf.shape(first)[0]

    # TensorArrays need the shapes and dtypes of their rows before the loop.
    traced = tf.function(step, autograph=False).get_concrete_function(
        {n: tf.TensorSpec(x.shape, x.dtype) for n, x in init.items()},
        {n: tf.TensorSpec(x.shape[1:], x.dtype) for n, x in xs.items()},
    )
    _, made = traced.structured_outputs

    inputs = {
        name: tf.TensorArray(
            x.dtype, length, element_shape=x.shape[1:]
        ).unstack(x)
        for name, x in xs.items()
    }
    outputs = [
        tf.TensorArray(y.dtype, length, element_shape=y.shape)
        for y in made.values()
    ]

    def body(i, carry, outputs):
        t = length - 1 - i if reverse else i
        x = {name: array.read(t) for name, array in inputs.items()}
        new, y = step(dict(zip(init, carry, strict=True)), x)
        outputs = [
            array.write(t, y[name])
            for name, array in zip(made, outputs, strict=True)
        ]
        return i + 1, [new[name] for name in init], outputs

    # The trip count stays known to XLA only in this form: a condition of
    # `t < T` makes a GPU ask the host at every step.
    _, carry, outputs = tf.while_loop(
        lambda *_: True,
        body,
        (0, list(init.values()), outputs),
        maximum_iterations=length,
        parallel_iterations=1,
    )
    stacked = [array.stack() for array in outputs]
    return (
        dict(zip(init, carry, strict=True)),
        dict(zip(made, stacked, strict=True)),
    )


def _written_out_scan(step, init, xs, reverse):
    order = range(next(iter(xs.values())).shape[0])
    carry, rows = init, []
    for t in reversed(order) if reverse else order:
        carry, y = step(carry, {name: x[t] for name, x in xs.items()})
        rows.append(y)
    if reverse:
        rows.reverse()
    return carry, {
        name: tf.stack([row[name] for row in rows]) for name in rows[0]
    }


def _forward_mode(step, init, xs):
    """Whether a `tf.autodiff.ForwardAccumulator` here follows a step."""
    if not forwardprop_util.pack_tangents([*xs.values()]).indices:
        return False
    # It may watch a tensor that only the step uses.
    results = step(init, {name: x[0] for name, x in xs.items()})
    return has_tangents(tf.nest.flatten(results))
