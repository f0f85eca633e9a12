"""What the check of the GPU kernels needs from TensorFlow."""

import tensorflow as tf


def use_format(format):
    """Sets it, in a process that is for the check alone."""
    tf.config.experimental.enable_tensor_float_32_execution(format == "tf32")


def program(layer, x, options, cotangent=None, how=""):
    """A function that runs a layer, and waits: y, and gradients."""
    x = tf.constant(x, layer.compute_dtype)
    weights = [v.value for v in layer.trainable_variables]

    @tf.function(autograph=False)
    def run(x):
        if cotangent is None:
            return [layer(x, **options)]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, **options)
        slopes = tape.gradient(y, [x, *weights], tf.cast(cotangent, y.dtype))
        return [y, *slopes]

    def waited():
        found = run(x)
        tf.test.experimental.sync_devices()
        return found

    return waited


def numbers(tensor):
    """In float64, of NumPy."""
    return tf.cast(tensor, "float64").numpy()
