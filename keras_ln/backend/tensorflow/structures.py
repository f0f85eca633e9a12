"""Nested structures of tensors, and questions about them."""

import tensorflow as tf

# TensorFlow exports no way to ask for its forward mode and callbacks (2.21).
from tensorflow.python.eager import context, forwardprop_util

from keras_ln._keras import exporter


def fill(structure, leaves):
    """``structure`` with its tensors replaced by the leaves."""
    return tf.nest.pack_sequence_as(structure, list(leaves))


def has_tangents(tensors):
    """Whether a `tf.autodiff.ForwardAccumulator` follows any of them."""
    return bool(forwardprop_util.pack_tangents(tensors).tangents)


def plain_operations_reason(arrays):
    """Why ordinary operations must run on the arrays, or None."""
    if arrays is None:
        follows = bool(forwardprop_util.pack_tangents([]).indices)
    else:
        # pack_tangents fails on some variables; their values have the tangents.
        follows = has_tangents([*map(tf.convert_to_tensor, arrays.values())])
    # Through a custom gradient its derivative is None, or zero (2.21).
    if follows:
        return "A tf.autodiff.ForwardAccumulator needs ordinary operations."
    # XLA has no kernel for the operations that they add.
    if context.context().op_callbacks:
        return "tf.debugging needs ordinary operations."
    # Converters leave the call of a function for XLA in the file that they
    # write (tf2onnx 1.17), and only TensorFlow can run it.
    # test_a_call_for_xla_is_left_in_onnx notices a change.
    if not tf.executing_eagerly():
        if not (exporter() or "saved_model").startswith("saved_model"):
            return "The file that Keras exports needs ordinary operations."
    return None
