"""Padding that no later product turns into NaN."""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import arguments, dtypes

# The squares of larger numbers overflow in float32, and a gradient of zero
# times infinity, or times NaN, is NaN.
_LARGEST = 1e18


def with_usable_padding(x: Any, mask: Any) -> Any:
    """Replaces masked NaN, inf and numbers above 1e18 in `x` (...) by 0.

    Other numbers stay, because the outputs of some layers show them.

    Args:
        x: tensor. Integers, and nested structures, are returned unchanged.
        mask: tensor or array, False for masked entries, along the first axes
            of `x` or all of them. None, or another shape, changes nothing.
    """
    if not hasattr(mask, "shape") or not _is_floating(x):
        return x
    mask = keras.ops.cast(keras.ops.convert_to_tensor(mask), "bool")
    rest = len(x.shape) - len(mask.shape)
    if rest < 0 or not all(
        size == 1 or arguments.may_equal(size, wanted)
        for size, wanted in zip(mask.shape, x.shape, strict=False)
    ):
        return x
    for _ in range(rest):
        mask = mask[..., None]
    # False for NaN.
    usable = keras.ops.abs(dtypes.widen(x)) <= _LARGEST
    return backend.where(keras.ops.logical_or(mask, usable), x, 0.0)


def _is_floating(x: Any) -> bool:
    return hasattr(x, "dtype") and keras.backend.is_float_dtype(x.dtype)
