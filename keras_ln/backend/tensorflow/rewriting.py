"""Gradients of one's own that stay where TensorFlow rewrites a graph.

`tf.vectorized_map`, and Jacobians, which use it, put ordinary operations in the
place of a `tf.custom_gradient`. Importing a graph, freezing and pruning it keep
the gradient's name, and the function of that name looks into the graph that
there was before (2.21).
"""

import functools
import itertools
import weakref

import tensorflow as tf

# Not exported (2.21).
from tensorflow.python.eager import record
from tensorflow.python.ops.parallel_for import pfor

_numbers = itertools.count()


def unrecorded(function, *args):
    """``function(*args)``, into which no `tf.GradientTape` looks.

    Not by `tf.stop_gradient`: a graph that was rewritten without its custom
    gradients would have gradients of zero.
    """
    with record.stop_recording():
        return function(*args)


def custom_gradient(function, again, in_turn=False):
    """`tf.custom_gradient(function)`, which rewritten graphs keep.

    There the gradients are those of ``again(*leaves)``, which computes what
    ``function`` does from the leaves alone. Both give lists of tensors. With
    ``in_turn`` the iterations of a `tf.vectorized_map` are differentiated one
    after the other: it cannot vectorise the gradient of a loop (2.21).
    """
    original = tf.custom_gradient(function)

    def op(*leaves):
        results = original(*leaves)
        if tf.executing_eagerly() or not results:
            return results
        # test_vectorized_map_keeps_gradients notices if it is not asked for.
        results[0].op.pfor_converter = functools.partial(
            _vectorized, again, in_turn, len(results)
        )
        return _named(again, results, leaves)

    return op


def derivative(function, leaves, cotangents):
    """Gradients of ``function(*leaves)``; None for leaves without."""
    # One tensor may be two leaves.
    leaves = list(map(tf.identity, leaves))
    watched = [leaf for leaf in leaves if leaf.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        results = function(*leaves)
    gradients = iter(
        tape.gradient(
            results, watched, cotangents, unconnected_gradients="zero"
        )
    )
    return [next(gradients) if x.dtype.is_floating else None for x in leaves]


def _named(again, results, leaves):
    """The results, by an operation whose gradient can be taken of a copy."""
    graph = tf.compat.v1.get_default_graph()
    name, count = f"keras_ln.{next(_numbers)}", len(results)
    shapes = [leaf.shape for leaf in leaves]
    there: dict = {}

    @tf.RegisterGradient(name)
    def gradient(operation, *cotangents):
        cotangents = cotangents[:count]
        # Saving a model traces this without an operation.
        if operation is None or there["is"](operation):
            return [*cotangents, *[None] * len(leaves)]
        given = map(tf.ensure_shape, operation.inputs[count:], shapes)
        return [*[None] * count, *derivative(again, given, cotangents)]

    with graph.gradient_override_map({"IdentityN": name}):
        made = tf.identity_n([*results, *leaves])
    there["is"] = functools.partial(
        _is, weakref.ref(made[0].graph), made[0].op.name
    )
    return made[:count]


def _is(graph, name, operation):
    return operation.graph is graph() and operation.name == name


def _vectorized(again, in_turn, count, converted):
    """All iterations of a `tf.vectorized_map` at once.

    ``converted`` has the operation's inputs, results first, each either
    stacked, with the iterations along its first axis, or the same in all.
    """
    results = [converted.stacked_input(i) for i in range(count)]
    leaves = converted.inputs[count:]
    stacked = [leaf.is_stacked for leaf in leaves]
    of_each = [*stacked, *[True] * count]
    differentiable = [leaf.t.dtype.is_floating for leaf in leaves]

    def one_gradient(*values):
        found = derivative(again, values[:-count], values[-count:])
        return [gradient for gradient in found if gradient is not None]

    def function(*leaves):
        def gradient(*cotangents):
            values, specs = [*leaves, *cotangents], None
            if in_turn:
                specs = [
                    tf.TensorSpec(x.shape[1:] if each else x.shape, x.dtype)
                    for x, each in zip(leaves, stacked, strict=True)
                    if x.dtype.is_floating
                ]
            found = iter(_map(one_gradient, values, of_each, specs))
            return [
                (next(found) if each else tf.reduce_sum(next(found), 0))
                if has_gradient
                else None
                for each, has_gradient in zip(
                    stacked, differentiable, strict=True
                )
            ]

        return results, gradient

    def all_again(*leaves):
        # The iterations are counted even where nothing else tells them apart.
        given = [tf.range(tf.shape(results[0])[0]), *leaves]
        return _map(lambda _, *row: again(*row), given, [True, *stacked])

    made = custom_gradient(function, all_again, in_turn)(
        *[leaf.t for leaf in leaves]
    )
    return [*[pfor.wrap(result, True) for result in made], *leaves]


def _map(function, values, of_each, specs=None):
    """Lists from ``function`` of the rows of some values, and of the others.

    One row after the other where ``specs`` are given, which its tensors have.
    """
    rows = [x for x, each in zip(values, of_each, strict=True) if each]

    def one(rows):
        rows = iter(rows)
        return list(
            function(
                *[
                    next(rows) if each else x
                    for x, each in zip(values, of_each, strict=True)
                ]
            )
        )

    if specs is None:
        return tf.vectorized_map(one, rows)
    return tf.map_fn(one, rows, fn_output_signature=specs)
