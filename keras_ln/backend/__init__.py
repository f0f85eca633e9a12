"""What keras_ln needs from a framework, and nothing else.

The modules of this package are the only files that import TensorFlow, JAX or
torch. Each of them supplies the same names, and so does `inference` for the
backends on which Keras has no gradients:

``scan(step, init, xs, *, reverse=False)``
    ``step(carry, x) -> (carry, y)`` for every index of the leading axis of the
    arrays of ``xs``; returns ``(carry, ys)``. ``carry``, ``x`` and ``y`` are
    dictionaries of tensors by name. With ``reverse`` the steps are visited last
    to first, and ``ys[name][t]`` still belongs to ``xs[name][t]``. The number
    of steps may be unknown where the framework allows it. Differentiable by the
    framework's own means.

``custom_vjp(forward, backward, reference=None, compiled=True,
reference_backward=None)``
    A differentiable function ``op(arrays, keep=True, owner=...) -> outputs``
    with a hand-written vector-Jacobian product; errors name the owner. Arrays,
    outputs, residuals, cotangents and gradients are dictionaries of tensors by
    name. ``forward(arrays, keep=...)`` returns ``(outputs, residuals)``, of
    which without ``keep`` only the outputs are used, and
    ``backward(residuals, cotangents)`` the gradients of the arrays that have
    one. Missing cotangents arrive as zeros. XLA compiles both on
    TensorFlow and JAX; on TensorFlow not without ``compiled``, unless it
    compiles the program around them. Second derivatives are plain autodiff of
    ``reference_backward(reference(arrays, keep=True)[1], cotangents)``, in
    which the reference is the other pair of functions by default. ``reference``
    returns what ``forward`` does; with a ``reference_backward``, which takes
    them, its residuals are its own, and ``forward`` and ``backward`` need be
    programs for a CPU alone. JAX and torch know whether there is something to
    differentiate, and keep residuals then alone. TensorFlow does not: it takes
    the ``keep`` of the call, and without it a gradient runs the sequence again
    first. Build an op once per static configuration and keep it: a new op
    compiles anew.

``tanh, sigmoid, relu, exp, log, sqrt, matmul, mean, sum``
    As in ``keras.ops``, except that float64 stays float64 to its last digit:
    ``keras.ops`` falls back to float32 in some of these on JAX and torch.
    ``matmul(a, b)`` takes ``a`` of any rank and a matrix ``b``.

``cast(x, dtype)``, ``where(condition, x, y)``
    As in ``keras.ops``, which takes several times as long on torch, where
    loops feel it. ``x`` is a tensor; that or ``y`` of ``where`` may be a
    number.

``fused_sum(x, axes, keepdims=False, weights=None)``
    ``sum`` of ``x``, or of ``x * weights``, over ``axes`` (a sorted tuple,
    not negative, maybe empty). The weights have size 1 at all other axes. For
    inside the functions given to ``custom_vjp``: in whatever form computes
    ``x`` and its sum in one pass where XLA runs.

``how_to_densify(x)``
    A sentence on how to make a dense tensor of ``x``, or None where it is one
    or can be converted to one.

``on_cpu()``
    Whether programs run on a CPU, as far as that is known where they are
    made. On other devices launching a kernel takes longer than its arithmetic.

``reads_python()``
    Whether a compiler is at work that reads Python code, and differentiates
    by itself what it has read, as torch.compile does. A cache of ops would
    only be in its way.

``plain_operations_reason(arrays)``
    A sentence on why ordinary operations must run on these, whose derivatives
    the framework takes, in the place of a gradient of one's own, or None. Who
    calls an op of ``custom_vjp`` asks before. ``arrays`` is a dictionary, or
    None where there are none yet: then it says what holds for arrays that are
    differentiated.

``stands_for_unknown(length)``
    Whether a number of steps is what Keras puts in the place of an unknown one
    while it exports.

``current_trace()``
    What is being traced. Two answers are equal where no trace has begun or
    ended in between. None where Keras' loops trace nothing whose tensors must
    stay in the loop.

``call_native(call, arrays)``
    One call of the CPU kernels that keras-ln-kernels has, without derivatives:
    ``call`` is a ``keras_ln_kernels.call.Call``, which says what runs, forwards
    or backwards, ``arrays`` a dictionary with the tensors that its
    ``arguments`` name, in the shapes that it tells. Returns a dictionary with
    the tensors that its ``results`` name. Batch and steps may be unknown where
    the framework allows it. torch.compile, which sees an operator, can
    differentiate it once.

``native_reason()``
    A sentence on why kernels cannot be called here, or None. It must have been
    asked before the first call, which relies on what it registers.

``native_description()``
    The kernels' version and instruction set, where there is no such sentence.

``is_exported()``
    Whether the program that is being traced will be saved, to run where there
    may be no kernels, as far as that is known.

``jacobian(function, x)``
    Of a function from one tensor to one tensor, at ``x``: a tensor of the
    shape ``function(x).shape + x.shape`` with the derivative of every output,
    zeros where it does not depend on ``x``. Reverse mode, as functions made
    by ``custom_vjp`` need.
"""

import importlib
from typing import Any

import keras

from keras_ln.backend import native

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

_infers = _NAME in _FOR_INFERENCE
_module: Any = importlib.import_module(
    f"{__name__}.{'inference' if _infers else _NAME}"
)
_native: Any = importlib.import_module(
    f"{__name__}.{'inference' if _infers else f'native_{_NAME}'}"
)

scan = _module.scan
custom_vjp = _module.custom_vjp
tanh = _module.tanh
sigmoid = _module.sigmoid
relu = _module.relu
exp = _module.exp
log = _module.log
sqrt = _module.sqrt
matmul = _module.matmul
mean = _module.mean
sum = _module.sum
cast = _module.cast
where = _module.where
fused_sum = _module.fused_sum
how_to_densify = _module.how_to_densify
on_cpu = _module.on_cpu
reads_python = _module.reads_python
plain_operations_reason = _module.plain_operations_reason
stands_for_unknown = _module.stands_for_unknown
current_trace = _module.current_trace
jacobian = _module.jacobian
call_native = _native.call_native
native_description = native.description
native_reason = _native.reason
is_exported = _native.is_exported
