"""The functions that keras_ln needs from a framework, and nothing else.

The modules of this package are the only files that import TensorFlow, JAX or
torch. Each of them supplies the same names, and so does `inference` for the
backends on which Keras has no gradients:

``scan(step, init, xs, *, reverse=False)``
    ``step(carry, x) -> (carry, y)`` for every index of the leading axis of the
    arrays of ``xs``; returns ``(carry, ys)``. ``carry``, ``x`` and ``y`` are
    dictionaries of tensors by name. With ``reverse`` the steps are visited last
    to first, and ``ys[name][t]`` still belongs to ``xs[name][t]``. The number
    of steps may be unknown if the framework allows it. The framework itself
    differentiates the loop.

``custom_vjp(forward, backward, reference=None, compiled=True,
reference_backward=None, platform="cpu")``
    A differentiable function ``op(arrays, keep=True, owner=...) -> outputs``
    with a hand-written vector-Jacobian product; errors name the owner. Arrays,
    outputs, residuals, cotangents and gradients are dictionaries of tensors by
    name. ``forward(arrays, keep=...)`` returns ``(outputs, residuals)``; only
    the outputs are used without ``keep``. ``backward(residuals, cotangents)``
    returns the gradients of the arrays that have one. Missing cotangents arrive
    as zeros. XLA compiles both functions on TensorFlow and JAX; on TensorFlow
    without ``compiled`` only if it compiles the program around them. Second
    derivatives are plain autodiff of
    ``reference_backward(reference(arrays, keep=True)[1], cotangents)``; the
    reference functions are ``forward`` and ``backward`` by default.
    ``reference`` returns the same outputs as ``forward``. Given a
    ``reference_backward``, which takes them, it may have other residuals, and
    ``forward`` and ``backward`` need to run only on that platform, "cpu" or
    "cuda". JAX and torch keep residuals only when they differentiate;
    TensorFlow uses the ``keep`` of the call, and without it a gradient runs the
    sequence again. Build an op once per static configuration: every new op is
    compiled. An op that torch.compile reads has no second derivatives.

``tanh, sigmoid, relu, exp, log, sqrt, matmul, mean, sum``
    As in ``keras.ops``, except that float64 stays float64 to its last digit:
    ``keras.ops`` falls back to float32 in some of these on JAX and torch.
    ``matmul(a, b)`` takes ``a`` of any rank and a matrix ``b``.

``cast(x, dtype)``, ``where(condition, x, y)``, ``reshape``, ``transpose``
    As in ``keras.ops``, which takes several times as long on torch and slows
    loops down. ``x`` of ``cast`` is a tensor; ``x`` or ``y`` of ``where`` may
    be a number.

``fused_sum(x, axes, keepdims=False, weights=None)``
    ``sum`` of ``x``, or of ``x * weights``, over ``axes`` (a sorted tuple,
    not negative, maybe empty). The weights have size 1 at all other axes. It
    is meant for functions given to ``custom_vjp``, and has a form in which XLA
    computes ``x`` and its sum in one pass.

``how_to_densify(x)``
    A sentence on how to make a dense tensor of ``x``, or None if it is one or
    can be converted to one.

``on_cpu()``
    Whether programs run on a CPU, as far as that is known when they are traced.
    On other devices launching an operation takes longer than its arithmetic.

``trace_context(arrays)``
    The ``TraceContext``: facts about the program that runs on these arrays or
    is being traced. Callers of an op of ``custom_vjp`` ask first. ``arrays`` is
    a dictionary, or None before there are arrays: the answer then assumes that
    they are differentiated.

``stands_for_unknown(length)``
    Whether Keras uses this number of steps for an unknown one in an export.

``once_all(conditions, x, message)``
    ``x``, after a program has found that all these bool tensors () are true;
    otherwise it ends with the message, a list of strings and tensors. Only on
    TensorFlow are there sizes that a program learns when it runs: elsewhere it
    is ``x``.

``current_trace()``
    A token of the current trace, equal to an older one if no trace has begun or
    ended in between. None on frameworks whose tensors may leave Keras' loops.

``call_native(call, arrays)``
    One call of the CPU extension, without derivatives. ``call`` is a
    ``keras_ln_kernels.call.Call``, a forward or a backward run; ``arrays`` and
    the result are dictionaries of the tensors that its ``arguments`` and its
    ``results`` name. Batch and steps may be unknown if the framework allows it.
    torch.compile sees an operator, and can differentiate it once.

``native_reason()``
    A sentence on why the CPU extension cannot be called, or None. Call it
    before the first ``call_native``, which relies on its registrations.

``native_description()``
    Version and instruction set of the extension if ``native_reason`` is None.

``is_exported()``
    Whether the program that is being traced will be saved, and may run without
    keras-ln-kernels, as far as that is known.

``call_gpu(call, arrays)``
    As ``call_native``, one launch of a GPU kernel, with a
    ``keras_ln_kernels.gpu_call.GpuCall``. It does not wait for the GPU.

``gpu_reason()``
    A sentence on why the GPU kernels cannot be called, or None. Call it before
    the first ``call_gpu``, which relies on its registrations.

``gpu_said()``
    When the GPU kernels were checked if ``gpu_reason`` is None. It and the next
    are None on backends without GPU kernels.

``gpu_plan_reason(x, cell, units, operands, training)``
    A sentence on why the GPU of ``x`` (on TensorFlow and JAX: some GPU) runs no
    kernel for a cell with so many units and products of that dtype, or None.
    The first call compiles and loads the kernels, with that of the gradient if
    there may be one.

``jacobian(function, x)``
    The Jacobian at ``x`` of a function from one tensor to one tensor: a tensor
    of the shape ``function(x).shape + x.shape`` with the derivative of every
    output, zero if the output does not depend on ``x``. It uses reverse mode,
    as functions made by ``custom_vjp`` need.
"""

from typing import Any, NamedTuple

import keras

from keras_ln.backend import native


class TraceContext(NamedTuple):
    """The facts about a program that decide which implementation may run."""

    # A sentence on why ordinary operations, which the framework differentiates,
    # must run instead of a hand-written gradient, or None.
    autodiff_reason: str | None = None
    # A sentence on the compiler at work that reads Python code and
    # differentiates it itself, or None. A cache of ops would only obstruct it.
    compiler_reason: str | None = None
    # The answer of `on_cpu`.
    on_cpu: bool = True
    # The arrays' device if one program may have tensors of several devices.
    device: Any = None
    # A sentence on why no function of `fused` can serve, or None.
    fused_reason: str | None = "The framework compiles ordinary operations."


_NAME = keras.backend.backend()
_BACKENDS = ("tensorflow", "jax", "torch")
_FOR_INFERENCE = ("numpy", "openvino")

if _NAME not in _BACKENDS + _FOR_INFERENCE:
    raise ImportError(
        "keras_ln runs on the Keras backends tensorflow, jax and torch, and "
        f"for inference on numpy and openvino. Received: {_NAME!r}. Set the "
        "environment variable KERAS_BACKEND, or `backend` in keras.json, to "
        "one of them before importing Keras."
    )

_module: Any
_native: Any
# TensorFlow's functions for LiteRT, or None.
litert: Any = None
# torch's layer normalisation and gradients of activations, or None.
fused: Any = None
_gpu: Any
# Written out: tools that freeze programs follow no computed names.
if _NAME == "tensorflow":
    from keras_ln.backend import tensorflow
    from keras_ln.backend.tensorflow import gpu as gpu_tensorflow
    from keras_ln.backend.tensorflow import litert as litert_tensorflow
    from keras_ln.backend.tensorflow import native as native_tensorflow

    litert = litert_tensorflow
    _module, _native, _gpu = tensorflow, native_tensorflow, gpu_tensorflow
elif _NAME == "jax":
    from keras_ln.backend import jax
    from keras_ln.backend.jax import gpu as gpu_jax
    from keras_ln.backend.jax import native as native_jax

    _module, _native, _gpu = jax, native_jax, gpu_jax
elif _NAME == "torch":
    from keras_ln.backend import torch
    from keras_ln.backend.torch import fused as fused_torch
    from keras_ln.backend.torch import gpu as gpu_torch
    from keras_ln.backend.torch import native as native_torch

    fused = fused_torch
    _module, _native, _gpu = torch, native_torch, gpu_torch
else:
    from keras_ln.backend import inference

    _module = _native = _gpu = inference

scan = _module.scan
custom_vjp = _module.custom_vjp
tanh = _module.tanh
sigmoid = _module.sigmoid
relu = _module.relu
exp = _module.exp
log = _module.log
sqrt = _module.sqrt
matmul = _module.matmul
reshape = _module.reshape
transpose = _module.transpose
mean = _module.mean
sum = _module.sum
cast = _module.cast
where = _module.where
fused_sum = _module.fused_sum
how_to_densify = _module.how_to_densify
on_cpu = _module.on_cpu
trace_context = _module.trace_context
stands_for_unknown = _module.stands_for_unknown
once_all = _module.once_all
current_trace = _module.current_trace
jacobian = _module.jacobian
call_native = _native.call_native
native_description = native.description
native_reason = _native.reason
is_exported = _native.is_exported
call_gpu = _gpu.call_gpu
gpu_reason = _gpu.reason
gpu_said = _gpu.said
gpu_plan_reason = _gpu.plan_reason
