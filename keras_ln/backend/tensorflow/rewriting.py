"""Custom gradients that survive when TensorFlow rewrites a graph.

`tf.vectorized_map`, and Jacobians, which use it, replace a `tf.custom_gradient`
by ordinary operations. Importing a graph, freezing and pruning it keep the
gradient's name, but the function of that name uses tensors of the original
graph (2.21).
"""

import contextlib
import functools
import itertools
import uuid
import weakref

import tensorflow as tf

# Not exported (2.21).
from tensorflow.python.eager import forwardprop_util, record
from tensorflow.python.ops import control_flow_util
from tensorflow.python.ops.parallel_for import pfor

from keras_ln.backend.tensorflow.structures import fill, has_tangents


def unrecorded(function, *args):
    """The results of a `tf.function` that no `tf.GradientTape` looks into.

    Not by `tf.stop_gradient`: a graph that was rewritten without its custom
    gradients would have gradients of zero.
    """
    with record.stop_recording():
        results = function(*args)
    if not tf.executing_eagerly():
        operation = tf.nest.flatten(results)[0].op
        # It is another operation after tf.config.run_functions_eagerly.
        if operation.type.endswith("PartitionedCall"):
            operation.pfor_converter = functools.partial(
                _unrecorded_iterations, function, args
            )
    return results


def custom_gradient(function, again, in_turn):
    """`tf.custom_gradient(function)`, which rewritten graphs keep.

    Rewritten graphs differentiate ``again(*leaves)``, which returns the results
    of ``function`` and uses only the leaves. Both return lists of tensors. If
    ``in_turn()`` is true, the iterations of a `tf.vectorized_map` are
    differentiated one after the other.
    """
    original = tf.custom_gradient(function)

    def op(*leaves):
        results = original(*leaves)
        if tf.executing_eagerly() or not results:
            return results
        results[0].op.pfor_converter = functools.partial(
            _differentiable_iterations, again, in_turn, len(results)
        )
        return _named(again, results, leaves)

    return op


def compiles_loops(function, *args):
    """Whether XLA compiles the program, and a loop of the `tf.function` in it.

    It cannot compile a loop that `tf.vectorized_map` vectorised (2.21).
    """
    graph = tf.compat.v1.get_default_graph()
    compiled = control_flow_util.GraphOrParentsInXlaContext(graph)
    return compiled and has_loops(function, *args)


def has_loops(function, *args):
    """Whether a `tf.function` runs a loop.

    `tf.vectorized_map` cannot vectorise the gradient of one (2.21).
    """
    graph = function.get_concrete_function(*args).graph.as_graph_def()
    inside = [definition.node_def for definition in graph.library.function]
    return any(
        node.op.endswith("While")
        for node in itertools.chain(graph.node, *inside)
    )


def _named(again, results, leaves):
    """The results, from an operation whose copies have gradients."""
    graph = tf.compat.v1.get_default_graph()
    # A graph's file takes the name to other processes, which have their own.
    name = f"keras_ln.{uuid.uuid4().hex}"
    inputs, count, number = [*results, *leaves], len(results), len(leaves)
    shapes = [tensor.shape for tensor in inputs]
    is_original: list = []

    @tf.RegisterGradient(name)
    def gradient(operation, *cotangents):
        cotangents = cotangents[:count]
        # Saving a model traces this without an operation.
        if operation is None or is_original[0](operation):
            return [*cotangents, *[None] * number]
        # A graph's file does not hold all shapes.
        given = map(
            tf.ensure_shape, (*cotangents, *operation.inputs[count:]), shapes
        )
        known = list(itertools.islice(given, count))
        return [*[None] * count, *_derivative(again, given, known)]

    # A tape would take IdentityN's own gradient: zeros for every leaf.
    with (
        record.stop_recording(),
        graph.gradient_override_map({"IdentityN": name}),
    ):
        made = tf.identity_n(inputs)
    record.record_operation(
        "IdentityN",
        made,
        inputs,
        lambda *cotangents: [*cotangents[:count], *[None] * number],
    )
    own, named = weakref.ref(made[0].op.graph), made[0].op.name
    is_original.append(lambda one: one.graph is own() and one.name == named)
    return made[:count]


def _derivative(function, leaves, cotangents):
    """Gradients of ``function(*leaves)``; None for leaves of integers."""
    # One tensor may be several leaves.
    leaves = list(map(tf.identity, leaves))
    watched = [leaf for leaf in leaves if leaf.dtype.is_floating]
    # A tape records nothing beside a `tf.autodiff.ForwardAccumulator` (2.21),
    # which may differentiate a function that does not know of it.
    others = contextlib.nullcontext()
    if not has_tangents([*leaves, *cotangents]):
        others = forwardprop_util.push_forwardprop_state()
    with others:
        with tf.GradientTape() as tape:
            tape.watch(watched)
            results = function(*leaves)
        gradients = iter(
            tape.gradient(
                results, watched, cotangents, unconnected_gradients="zero"
            )
        )
    return [next(gradients) if x.dtype.is_floating else None for x in leaves]


# tf.vectorized_map calls the following two functions instead of its own
# converters. `converted` has the operation's inputs, each either stacked, with
# the iterations along its first axis, or the same in all iterations.
# test_vectorized_map notices if TensorFlow no longer reads the attribute.


def _unrecorded_iterations(function, args, converted):
    """All iterations of a call of `unrecorded`."""

    def one(_, *leaves):
        return tf.nest.flatten(function(*fill(args, leaves)))

    # The tensors that the function captures come after its arguments.
    leaves = converted.inputs[: len(tf.nest.flatten(args))]
    specs = None
    if compiles_loops(function, *args):
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in converted.outputs]
    # The count is stacked, even if nothing else is.
    values = [_count(converted), *[leaf.t for leaf in leaves]]
    stacked = [True, *[leaf.is_stacked for leaf in leaves]]
    with record.stop_recording():
        results = _map(one, values, stacked, specs)
    return [pfor.wrap(result, True) for result in results]


def _differentiable_iterations(again, in_turn, count, converted):
    """All iterations of an operation of `custom_gradient`."""
    results = [converted.stacked_input(i) for i in range(count)]
    leaves = converted.inputs[count:]
    stacked = [leaf.is_stacked for leaf in leaves]
    one_by_one = in_turn()

    def one_gradient(*values):
        found = _derivative(again, values[:-count], values[-count:])
        return [gradient for gradient in found if gradient is not None]

    def function(*leaves):
        def gradient(*cotangents):
            of_each = [*stacked, *[True] * count]
            specs = None
            if one_by_one:
                specs = [
                    tf.TensorSpec(x.shape[1:] if each else x.shape, x.dtype)
                    for x, each in zip(leaves, stacked, strict=True)
                    if x.dtype.is_floating
                ]
            found = iter(
                _map(one_gradient, [*leaves, *cotangents], of_each, specs)
            )
            gradients = [
                next(found) if x.dtype.is_floating else None for x in leaves
            ]
            return [
                g if each or g is None else tf.reduce_sum(g, 0)
                for g, each in zip(gradients, stacked, strict=True)
            ]

        return results, gradient

    def all_again(*leaves):
        return _map(
            lambda _, *leaves: again(*leaves),
            [_count(converted), *leaves],
            [True, *stacked],
        )

    made = custom_gradient(function, all_again, in_turn)(
        *[leaf.t for leaf in leaves]
    )
    return [*[pfor.wrap(result, True) for result in made], *leaves]


def _count(converted):
    """The numbers of the iterations."""
    return tf.range(converted.pfor.loop_len_vector[0])


def _map(function, values, of_each, specs=None):
    """Lists from ``function``, for rows of some values and the others whole.

    Given ``specs`` of its results, it runs for one row after the other.
    """
    rows = [x for x, each in zip(values, of_each, strict=True) if each]

    def one(rows):
        rows = iter(rows)
        given = [
            next(rows) if each else x
            for x, each in zip(values, of_each, strict=True)
        ]
        return list(function(*given))

    if specs is None:
        return tf.vectorized_map(one, rows)
    return tf.map_fn(one, rows, fn_output_signature=specs)
