"""``custom_vjp`` and ``jacobian`` of the contract, on TensorFlow."""

import functools
import threading

import tensorflow as tf

# Not exported (2.21).
from tensorflow.python.ops.control_flow_ops import XLAControlFlowContext

from keras_ln.backend.tensorflow.rewriting import (
    compiles_loops,
    custom_gradient,
    has_loops,
    unrecorded,
)
from keras_ln.backend.tensorflow.structures import fill, plain_operations_reason


def custom_vjp(
    forward,
    backward,
    reference=None,
    compiled=True,
    reference_backward=None,
    platform="cpu",
):
    first = forward if reference_backward else reference or forward
    reference = reference or forward
    reference_backward = reference_backward or backward

    def again(arrays, cotangents):
        residuals = reference(arrays, keep=True)[1]
        return reference_backward(residuals, cotangents)

    def both(arrays, cotangents):
        return backward(first(arrays, keep=True)[1], cotangents)

    def outputs_only(arrays):
        return reference(arrays, keep=False)[0]

    def without_residuals(arrays):
        return forward(arrays, keep=False)[0], arrays

    # TensorFlow has no public function that tells whether a tape records
    # (2.21), and a tape may look into a function long after it was traced.
    keeping = _differentiable(
        functools.partial(forward, keep=True),
        backward,
        again,
        outputs_only,
        compiled,
    )
    forgetting = _differentiable(
        without_residuals, both, again, outputs_only, compiled
    )

    def op(arrays, keep=True, owner="An op of keras_ln"):
        return (keeping if keep else forgetting)(arrays)

    return op


def _differentiable(forward, backward, again, outputs_only, compiled):
    """An op with the gradient ``backward``, differentiated as ``again`` is.

    ``again(arrays, cotangents)`` computes the same gradients as ``backward``,
    from the arrays only, and ``outputs_only(arrays)`` the outputs; plain
    autodiff can differentiate both.
    """
    # Keras leaves XLA off in several common situations (CPU-only machines,
    # tf.distribute, op determinism), hence separate functions here. With None
    # the program around them decides.
    jit_compile = True if compiled else None

    def traced_forward(arrays):
        trace = {}

        def new_tensors(inside):
            outputs, residuals = forward(inside)
            known = tf.nest.flatten(inside)
            index = {id(array): i for i, array in enumerate(known)}
            flat = tf.nest.flatten(residuals)
            trace["residuals"] = residuals
            trace["index"] = [index.get(id(leaf)) for leaf in flat]
            return outputs, [leaf for leaf in flat if id(leaf) not in index]

        # Runtimes without XLA refuse the call; their error shows its name.
        with tf.name_scope("export_inside_keras_ln.ops.portable"):
            outputs, new = tf.function(
                new_tensors, jit_compile=jit_compile, autograph=False
            )(arrays)
        # XLA would copy a residual that is an argument: it stays outside.
        known, new = tf.nest.flatten(arrays), iter(new)
        flat = [next(new) if i is None else known[i] for i in trace["index"]]
        return outputs, tf.nest.pack_sequence_as(trace["residuals"], flat)

    @functools.cache
    def forward_of(unknown):
        return tf.function(traced_forward, autograph=False)

    def compiled_forward(arrays):
        """The function for these arrays.

        One that was traced for unknown sizes would do for known ones, but the
        sizes of its results are unknown.
        """
        if tf.executing_eagerly():
            return forward_of(())
        sizes = [size for a in arrays.values() for size in a.shape]
        return forward_of(tuple(i for i, n in enumerate(sizes) if n is None))

    compiled_backward = tf.function(
        backward, jit_compile=jit_compile, autograph=False
    )

    ordinary = tf.function(again, autograph=False)

    def vjp(arrays, residuals, cotangents):
        """``backward``, made differentiable in arrays and cotangents."""
        given, box = (arrays, cotangents), {}

        def first_order(*leaves):
            # Residuals carry no history: second derivatives compute them
            # again from the arrays, by plain autodiff of both functions.
            _, c = fill(given, leaves)
            gradients = unrecorded(compiled_backward, residuals, c)
            box["gradients"] = gradients

            def second_order(*upstream):
                inside = [tf.identity(leaf) for leaf in leaves]

                def outputs_of(*inside):
                    return tf.nest.flatten(again(*fill(given, inside)))

                return _gradients(outputs_of, inside, upstream)

            return tf.nest.flatten(gradients), second_order

        def from_leaves(*leaves):
            inside, c = fill(given, leaves)
            _, made = unrecorded(compiled_forward(inside), inside)
            return tf.nest.flatten(vjp(inside, made, c))

        in_turn = functools.partial(has_loops, ordinary, arrays, cotangents)
        flat = custom_gradient(first_order, from_leaves, in_turn)(
            *tf.nest.flatten(given)
        )
        return fill(box["gradients"], flat)

    # Functions, because TensorFlow's forward mode cannot differentiate a
    # custom gradient inside the gradient of another one (2.21).
    eager_vjp = tf.function(vjp, autograph=False)
    traced_vjp = _ForEachThread(vjp)

    def op(arrays):
        arrays = {n: tf.convert_to_tensor(arrays[n]) for n in sorted(arrays)}
        if plain_operations_reason(arrays) is not None:
            return outputs_only(arrays)
        box = {}

        def call(*leaves):
            # A tape that records inside a compiled function fails on the
            # loop's TensorLists; there is nothing in it to record.
            inside = fill(arrays, leaves)
            run_it = compiled_forward(inside)
            outputs, residuals = unrecorded(run_it, inside)
            box["outputs"] = outputs
            if not tf.executing_eagerly():
                # Otherwise higher derivatives would go through that function.
                residuals = tf.nest.map_structure(tf.stop_gradient, residuals)

            def gradient(*cotangents):
                dense = _densified(cotangents, tf.nest.flatten(outputs))
                eager = tf.executing_eagerly()
                run = eager_vjp if eager else traced_vjp.function
                found = run(inside, residuals, fill(outputs, dense))
                for name, made in found.items():
                    made.set_shape(inside[name].shape)
                return [found.get(name) for name in inside]

            return tf.nest.flatten(outputs), gradient

        def from_leaves(*leaves):
            return tf.nest.flatten(op(fill(arrays, leaves)))

        in_turn = functools.partial(
            compiles_loops, compiled_forward(arrays), arrays
        )
        flat = custom_gradient(call, from_leaves, in_turn)(*arrays.values())
        return fill(box["outputs"], flat)

    return tf.autograph.experimental.do_not_convert(op)


class _ForEachThread(threading.local):
    """A `tf.function` in each thread, for programs that are being traced.

    TensorFlow builds the gradient of a function that a program calls when the
    program asks for it. It enters the function's graph then, and takes no lock
    (2.21): threads that trace at once must not share the function.
    """

    def __init__(self, function):
        self.function = tf.function(function, autograph=False)


def _gradients(function, leaves, cotangents):
    """Gradients of ``function(*leaves)``, by plain autodiff.

    Inside a graph they are built for XLA, whether it compiles them or not:
    TensorFlow caches the gradients for both cases. If it had built a loop's
    gradient without XLA, XLA would find lists of unknown length in it (2.21).
    """
    if tf.executing_eagerly():  # After tf.config.run_functions_eagerly.
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            outputs = function(*leaves)
        return tape.gradient(outputs, leaves, _densified(cotangents, outputs))
    context = XLAControlFlowContext()
    context.Enter()
    try:
        outputs = function(*leaves)
        return tf.gradients(outputs, leaves, _densified(cotangents, outputs))
    finally:
        context.Exit()


def _densified(cotangents, outputs):
    """The cotangents as tensors; gathers send `tf.IndexedSlices`."""

    # Not by tf.convert_to_tensor, which warns of the memory of a dense tensor:
    # the output has that size already.
    def dense(cotangent, output):
        if not isinstance(cotangent, tf.IndexedSlices):
            return cotangent
        rows = output.shape[0] or tf.shape(output)[0]
        return tf.math.unsorted_segment_sum(
            cotangent.values, cotangent.indices, rows
        )

    return list(map(dense, cotangents, outputs))


def jacobian(function, x):
    @tf.function(autograph=False)
    def differentiate(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.convert_to_tensor(function(x))
        # Otherwise a loop over time would be vectorised too.
        derive = tape.jacobian if y.shape.rank else tape.gradient
        return derive(y, x, unconnected_gradients="zero")

    # A direct call of the new function would warn of tracing.
    return differentiate.get_concrete_function(x)(x)
