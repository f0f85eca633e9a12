"""The backend contract on TensorFlow."""

from keras_ln.backend.tensorflow.arithmetic import (
    exp,
    fused_sum,
    how_to_densify,
    log,
    matmul,
    mean,
    on_cpu,
    reads_python,
    relu,
    sigmoid,
    sqrt,
    sum,
    tanh,
    where,
)
from keras_ln.backend.tensorflow.gradients import custom_vjp, jacobian
from keras_ln.backend.tensorflow.loops import scan

__all__ = [
    "custom_vjp",
    "exp",
    "fused_sum",
    "how_to_densify",
    "jacobian",
    "log",
    "matmul",
    "mean",
    "on_cpu",
    "reads_python",
    "relu",
    "scan",
    "sigmoid",
    "sqrt",
    "sum",
    "tanh",
    "where",
]
