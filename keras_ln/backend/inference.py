"""The backend contract on numpy and openvino, on which Keras only infers.

They differentiate nothing, so ops are their forward functions. Both compute in
float32 at most: Keras' numpy backend rounds float64 in most of its operations,
OpenVINO in all.
"""

import keras

from keras_ln._keras import exports_unknown_steps
from keras_ln.backend import TraceContext

_NAME = keras.backend.backend()
_NO_GRADIENTS = (
    f"On {_NAME} Keras infers with its own operations, and has no gradients. "
    "Use TensorFlow, JAX or torch for more."
)
tanh = keras.ops.tanh
sigmoid = keras.ops.sigmoid
relu = keras.ops.relu
exp = keras.ops.exp
log = keras.ops.log
sqrt = keras.ops.sqrt
matmul = keras.ops.matmul
reshape = keras.ops.reshape
transpose = keras.ops.transpose
mean = keras.ops.mean
sum = keras.ops.sum
cast = keras.ops.cast
where = keras.ops.where


def fused_sum(x, axes, keepdims=False, weights=None):
    x = x if weights is None else x * weights
    return sum(x, axes, keepdims) if axes else x


def how_to_densify(x):
    """None: all tensors are dense. See the package docstring."""


def on_cpu():
    return True


def trace_context(arrays):
    return TraceContext(_NO_GRADIENTS)


def once_all(conditions, x, message):
    return x


def stands_for_unknown(length):
    return length == 1 and exports_unknown_steps()


def current_trace():
    """None: see the package docstring."""


def scan(step, init, xs, *, reverse=False):
    length = next(iter(xs.values())).shape[0]
    # Keras 3.15 exports one step for an unknown number, which would be a wrong
    # program; test_what_openvino_does_not_run notices.
    if length is None or stands_for_unknown(length):
        raise ValueError(
            f"The number of steps must be known on {_NAME}. Received: "
            "sequences of unknown length. Give keras.Input that number, or "
            "export on another backend."
        )
    carry, rows = init, []
    for t in range(length - 1, -1, -1) if reverse else range(length):
        carry, y = step(carry, {name: x[t] for name, x in xs.items()})
        rows.append(y)
    if reverse:
        rows.reverse()
    return carry, {
        name: keras.ops.stack([row[name] for row in rows]) for name in rows[0]
    }


def custom_vjp(
    forward,
    backward,
    reference=None,
    compiled=True,
    reference_backward=None,
    platform="cpu",
):
    reference = reference or forward
    return lambda arrays, keep=True, owner="": reference(arrays, keep=False)[0]


def jacobian(function, x):
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_NO_GRADIENTS)


def reason():
    return _NO_GRADIENTS


def is_exported():
    return False


def call_native(call, arrays):
    """Raises `NotImplementedError`."""
    raise NotImplementedError(_NO_GRADIENTS)


call_gpu = call_native
# Nobody asks where there is a reason.
said = plan_reason = None
