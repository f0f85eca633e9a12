"""Layer normalization of one time step, as the recurrent cells use it.

Plain differentiable code without a custom gradient, so that the cell loop
has derivatives of every order and mode; `ops.layer_normalization` is the op
with a hand-written gradient.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.arguments import statistics_dtype


def widen(x: Any) -> Any:
    """`x` in at least float32, in which cells compute."""
    return keras.ops.cast(x, statistics_dtype(x.dtype))


def normalize(z: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """`gamma * (z - mean) / sqrt(variance + epsilon) + beta`, last axis.

    Args:
        z: tensor (..., F), in at least float32.
        gamma: scale (F), or None: `z` comes back as it is.
        beta: shift (F), or None.
        epsilon: number > 0, inside the square root.
    """
    if gamma is None:
        return z
    # Centred before squaring: E[z^2] - mean^2 loses every digit where the
    # mean is large, and compiles to more kernels.
    centred = z - backend.mean(z, -1, keepdims=True)
    variance = backend.mean(centred * centred, -1, keepdims=True)
    y = centred / backend.sqrt(variance + epsilon)
    return affine(y, gamma, beta)


def affine(y: Any, gamma: Any, beta: Any) -> Any:
    """`gamma * y + beta` in the dtype of `y`, without what is None."""
    if gamma is not None:
        y = y * keras.ops.cast(gamma, y.dtype)
    if beta is not None:
        y = y + keras.ops.cast(beta, y.dtype)
    return y
