"""Batch statistics, with masks and per time step, and their moving averages.

Source: Ioffe and Szegedy, "Batch Normalization" (2015); Cooijmans et al.,
"Recurrent Batch Normalization" (2016).
Letters: B batch, T time, F features, S the number of steps with moving
statistics of their own (`max_steps`).
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import dtypes


def batch_statistics(
    x: Any,  # (...)
    mask: Any = None,
    axes: Sequence[int] = (0,),
    unbiased: bool = False,
) -> tuple[Any, Any]:
    """Mean and variance over `axes` of the elements of `x` that count.

    Two passes, in at least float32; on a CPU the mean is corrected between
    them. With axes (0,) and x (B, T, F) these are the statistics of each time
    step.

    Args:
        x: floating-point tensor.
        mask: None, or a bool tensor of the rank of `x` that broadcasts
            against it, True for elements that count.
        axes: the axes to reduce.
        unbiased: divide the squares by n - 1 instead of n; NaN for n = 1.

    Returns:
        `(mean, variance)`. If no element counts they are 0 and 1, so that
        normalising with them does not change `x`.

    Raises:
        ValueError: with `unbiased`, if n is known to be 1.
    """
    axes = tuple(axes)
    if unbiased and static_count(x.shape, axes) == 1:
        raise ValueError(
            "`unbiased=True` divides by n - 1, so every statistic needs "
            f"n >= 2 elements. Received: shape {tuple(x.shape)}, reduced over "
            f"axes {axes}, which is n = 1. Use larger batches (drop a last "
            "batch of one), or unbiased=False."
        )
    x = keras.ops.cast(x, dtypes.at_least_float32(x.dtype))
    if mask is None:
        n = count = _count(x, axes)
        mean = backend.mean(x, axes, keepdims=True)
        d = x - mean
    else:
        weights = keras.ops.cast(mask, x.dtype)
        n = backend.sum(weights, axes, keepdims=True)
        count = keras.ops.maximum(n, 1.0)
        # Selected, not multiplied: padding may hold NaN.
        mean = backend.sum(keras.ops.where(mask, x, 0.0), axes, keepdims=True)
        mean = mean / count
        d = keras.ops.where(mask, x - mean, 0.0)
    if backend.on_cpu():
        # XLA's sums there are off by up to n roundings: without a correction
        # of the mean, equal elements would have a variance.
        rest = backend.sum(d, axes, keepdims=True) / count
        mean, d = mean + rest, d - rest
        if mask is not None:
            d = keras.ops.where(mask, d, 0.0)
    squares = backend.sum(d * d, axes, keepdims=True)
    # Not n, which may be 0: tools that stop at a NaN would see 0 / 0.
    variance = squares / (n - 1.0 if unbiased else count)
    if mask is not None:
        variance = keras.ops.where(n > 0, variance, 1.0)
    return keras.ops.squeeze(mean, axes), keras.ops.squeeze(variance, axes)


def normalize(
    x: Any,  # (...)
    mean: Any,  # broadcasts against x, like all that follow
    variance: Any,
    gamma: Any,  # or None
    beta: Any,  # or None
    epsilon: float,
) -> Any:
    """`gamma * (x - mean) / sqrt(variance + epsilon) + beta`, dtype of `x`.

    The arithmetic is done in at least float32.
    """
    dtype = dtypes.at_least_float32(x.dtype)
    scale = 1.0 / backend.sqrt(keras.ops.cast(variance, dtype) + epsilon)
    y = keras.ops.cast(x, dtype) - keras.ops.cast(mean, dtype)
    if gamma is not None:
        scale = scale * keras.ops.cast(gamma, dtype)
    y = y * scale
    if beta is not None:
        y = y + keras.ops.cast(beta, dtype)
    return keras.ops.cast(y, x.dtype)


def update_moving_statistics(
    moving_mean: Any,
    moving_variance: Any,
    mean: Any,
    variance: Any,
    momentum: float,
    valid: Any = None,
) -> tuple[Any, Any]:
    """Moves the averages: `moving * momentum + batch * (1 - momentum)`.

    An entry keeps its two values if its batch mean or batch variance is not
    finite (one NaN would stay in the average for ever), or if `valid`, a bool
    tensor that broadcasts against the others, is False.
    """
    usable = keras.ops.logical_and(
        keras.ops.isfinite(mean), keras.ops.isfinite(variance)
    )
    if valid is not None:
        usable = keras.ops.logical_and(usable, valid)

    def move(moving, batch):
        moving = keras.ops.convert_to_tensor(moving)
        wide = dtypes.at_least_float32(moving.dtype)
        old, batch = (keras.ops.cast(x, wide) for x in (moving, batch))
        moved = old * momentum + batch * (1.0 - momentum)
        return keras.ops.cast(keras.ops.where(usable, moved, old), moving.dtype)

    return move(moving_mean, mean), move(moving_variance, variance)


def update_step_statistics(
    moving_mean: Any,  # (S, F)
    moving_variance: Any,  # (S, F)
    mean: Any,  # (T, F)
    variance: Any,  # (T, F)
    momentum: float,
    valid: Any = None,  # (T,), False for steps without a row that counted
    first_step: Any = 0,  # the step of row 0 of the batch's statistics
) -> tuple[Any, Any]:
    """Moves the averages of the batch's steps; the other averages stay."""
    steps = keras.ops.shape(mean)[0]
    size = moving_mean.shape[0]
    index = keras.ops.arange(size, dtype="int32") - within(first_step, size)
    present = keras.ops.logical_and(index >= 0, index < steps)
    row = keras.ops.where(present, index, 0)
    if valid is not None:
        valid = keras.ops.take(valid, row, axis=0)
        present = keras.ops.logical_and(present, valid)
    return update_moving_statistics(
        moving_mean,
        moving_variance,
        keras.ops.take(mean, row, axis=0),
        keras.ops.take(variance, row, axis=0),
        momentum,
        valid=keras.ops.expand_dims(present, -1),
    )


def statistics_of_steps(
    moving: Any,  # (S, F)
    steps: Any,
    first_step: Any = 0,
) -> Any:
    """Rows (T, F) for `steps` steps; steps beyond S use the last row."""
    size = moving.shape[0]
    index = keras.ops.arange(steps, dtype="int32") + within(first_step, size)
    row = keras.ops.minimum(index, size - 1)
    return keras.ops.take(keras.ops.convert_to_tensor(moving), row, axis=0)


def within(step: Any, size: int) -> Any:
    """A step, an int or a tensor () of int32, clipped to 0 to `size`."""
    if isinstance(step, int):
        return min(step, size)
    return keras.ops.minimum(keras.ops.maximum(step, 0), size)


def static_count(
    shape: Sequence[int | None], axes: Sequence[int]
) -> int | None:
    """The number of elements along `axes`, or None if it is not known yet."""
    count = 1
    for axis in axes:
        size = shape[axis]
        if size is None:
            return None
        count *= size
    return count


def _count(x: Any, axes: Sequence[int]) -> Any:
    """The number of elements along `axes`, even if the graph has no size."""
    count = static_count(x.shape, axes)
    if count is None:
        sizes = keras.ops.shape(x)
        count = 1
        for axis in axes:
            count = count * sizes[axis]
    return keras.ops.cast(keras.ops.convert_to_tensor(count), x.dtype)
