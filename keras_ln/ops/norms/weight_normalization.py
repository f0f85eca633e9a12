"""Weight normalization: separate direction and length of every column.

Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2, 5, 6.
Letters: D input features, U units. In a convolution a unit's column runs over
several axes, and several other axes may count the units.
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import dtypes


def column_norms(
    v: Any,  # (D, U), or of any rank
    axes: Sequence[int] = (0,),  # Which a column runs over, in rising order.
) -> Any:
    """Euclidean norms (U) of the columns, in at least float32."""
    v = keras.ops.convert_to_tensor(v)
    v = keras.ops.cast(v, dtypes.at_least_float32(v.dtype))
    return backend.sqrt(_squares(v, axes))


def normalized_kernel(
    v: Any,  # (D, U), or of any rank
    g: Any,  # (U,), or v's shape without `axes`
    axes: Sequence[int] = (0,),  # Which a column runs over, in rising order.
) -> Any:
    """`g * v / ||v||` per column, in the shape and dtype of `v`.

    The arithmetic is done in at least float32. A column of zeros has no
    direction: it stays zero, with gradients that are finite.
    """
    v = keras.ops.convert_to_tensor(v)
    dtype = dtypes.at_least_float32(v.dtype)
    wide = keras.ops.cast(v, dtype)
    squares = _squares(wide, axes)
    # Replaced before the root: the root of 0 has an infinite derivative.
    # On torch, Keras would copy the 1 to a GPU, which no CUDA graph records.
    squares = backend.where(squares > 0, squares, 1.0)
    scale = keras.ops.cast(g, dtype) / backend.sqrt(squares)
    for axis in axes:
        scale = keras.ops.expand_dims(scale, axis)
    return keras.ops.cast(wide * scale, v.dtype)


def _squares(v: Any, axes: Sequence[int]) -> Any:
    """Sums of squares over the axes; without any, torch would sum over all."""
    squares = v * v
    return backend.sum(squares, tuple(axes)) if axes else squares


def weight_norm_dense(
    x: Any,  # (..., D)
    v: Any,  # (D, U)
    g: Any,  # (U,)
    bias: Any = None,  # (U,)
) -> Any:
    """`x . (g * v / ||v||) + bias` (..., U), in the dtype of `x`."""
    kernel = keras.ops.cast(normalized_kernel(v, g), x.dtype)
    y = backend.matmul(x, kernel)
    return y if bias is None else y + keras.ops.cast(bias, x.dtype)


def standardizing_parameters(
    x: Any,  # (..., D)
    v: Any,  # (D, U)
    scale: float,
) -> tuple[Any, Any]:
    """The `(g, bias)`, each (U), for outputs of mean 0 and deviation `scale`.

    With `t = x . v / ||v||` and its mean and standard deviation over all axes
    but the last, `g = scale / deviation` and `bias = -g * mean`. The results
    are not finite for a deviation of 0.
    """
    v = keras.ops.convert_to_tensor(v)
    dtype = dtypes.at_least_float32(v.dtype)
    x, v = keras.ops.cast(x, dtype), keras.ops.cast(v, dtype)
    t = backend.matmul(x, normalized_kernel(v, keras.ops.ones_like(v[0])))
    return standardizing_gain_and_shift(
        t, tuple(range(len(t.shape) - 1)), scale
    )


def standardizing_gain_and_shift(
    t: Any, axes: tuple[int, ...], scale: float
) -> tuple[Any, Any]:
    """The `(g, bias)` for `g * t + bias` of mean 0 and deviation `scale`.

    Mean and deviation are taken over `axes`. The results are not finite for a
    deviation of 0.
    """
    mean = backend.mean(t, axes, keepdims=True)
    d = t - mean
    g = scale / backend.sqrt(backend.mean(d * d, axes))
    return g, -g * keras.ops.reshape(mean, g.shape)
