"""Launches of keras-ln-kernels on TensorFlow's GPUs, as calls of XLA's."""

import functools

import tensorflow as tf
from tensorflow.python.eager import context

from keras_ln.backend import gpu, native
from keras_ln.backend.tensorflow.native import call_module, register

_PLATFORM = "CUDA"


def _numbers():
    """The numbers of TensorFlow's GPUs, or why it has none."""
    # Not exported: inside of tf.function the scope is the caller's too (2.21).
    scope = context.context().device_name
    if scope and "GPU" not in scope:
        return f"The device scope is {scope}: the GPU kernels need CUDA."
    return _devices() or "TensorFlow sees no GPU: the GPU kernels need CUDA."


def _devices():
    visible = tf.config.get_visible_devices("GPU")
    return tuple(int(gpu.name.rpartition(":")[2]) for gpu in visible)


@native.once
def _registered():
    from keras_ln_kernels import xla

    return xla.unsupported_reason() or register(
        {gpu.TARGET: xla.gpu_handler()}, _PLATFORM
    )


reason = gpu.reason_with(_numbers, _registered)
said = functools.partial(gpu.checked, _numbers)


def plan_reason(x, cell, units, operands, training):
    shape = tuple(x.shape[:2])
    wanted = cell, units, operands, format_of(operands), training, shape
    return gpu.reason_of_all(_devices(), *wanted)


def call_gpu(call, arrays):
    from keras_ln_kernels import xla

    given = [tf.convert_to_tensor(arrays[name]) for name in call.arguments]
    sizes = call.sizes({n: arrays[n].shape for n in ("zx", "recurrent")})
    for name, array in zip(call.arguments, given, strict=True):
        shape, dtype = call.shape(name, sizes), call.dtype_of(name)
        if not array.shape.is_compatible_with(shape) or array.dtype != dtype:
            raise ValueError(
                f"{name}: expected a tensor of {dtype} and shape {shape}. "
                f"Received: {array.dtype.name}, {array.shape}."
            )
    plan, space = gpu.planned(
        *(_devices(), call, sizes.units, format_of(call.operands)), sizes.batch
    )
    if isinstance(plan, str):
        raise RuntimeError(plan)
    results = [(call.axes(name), call.dtype_of(name)) for name in call.results]
    made = call_module(
        gpu.TARGET,
        xla.gpu_attributes(call, plan),
        given,
        results + [((name,), "uint8") for name in space],
        call.lengths(sizes) | space,
        _PLATFORM,
    )
    return dict(zip(call.results, made, strict=False))


def format_of(operands):
    """The format of a product's operands, as in TensorFlow's products."""
    if operands != "float32":
        return operands
    enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    return "tf32" if enabled else "3xtf32"
