"""Layer normalization with a hand-written VJP.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 3, 15, 16.
Shapes: x (...), any rank; statistics have x's rank, with size 1 at `axes`.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import arguments, dtypes
from keras_ln.engine.portable import trace_context
from keras_ln.ops.symbolic import takes_symbolic_tensors


@takes_symbolic_tensors
def layer_normalization(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
) -> Any:
    """Normalises each example over `axis`, then scales and shifts it.

    `gamma * (x - mean) / sqrt(variance + epsilon) + beta`, with the biased
    (1/n) statistics of every slice of `x` over `axis`. They are computed in
    two passes and in at least float32. Gradients of `x`, `gamma` and `beta`
    are hand-written, and keep `x`, `gamma` and three numbers per slice. A
    constant slice with `epsilon=0` is 0/0, hence NaN.

    Args:
        x: floating-point tensor of any rank >= 1.
        gamma: scale, of the sizes of `x` along the sorted `axis`, or None.
        beta: shift, of the same shape as `gamma`, or None.
        axis: one axis or several; negative axes count from the end.
        epsilon: finite number >= 0, inside the square root.

    Returns:
        A tensor with the shape and the dtype of `x`.

    Raises:
        TypeError: if `axis` is not an integer or a sequence of integers.
        ValueError: if `axis`, `epsilon`, the dtype of `x` or the shape of
            `gamma` or `beta` is wrong.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 3.

    >>> import keras
    >>> y = layer_normalization(keras.ops.convert_to_tensor([[1.0, 3.0]]))
    >>> print(keras.ops.convert_to_numpy(y).round(3))
    [[-1.  1.]]
    """
    x = arguments.dense_tensor("x", x)
    arguments.check_floating("x", x.dtype)
    axes = arguments.check_axes(axis, len(x.shape))
    epsilon = arguments.check_not_negative("epsilon", epsilon)
    sizes = tuple(x.shape[a] for a in axes)
    gamma = _as_parameter("gamma", gamma, sizes)
    beta = _as_parameter("beta", beta, sizes)
    given = {"x": x, "gamma": gamma, "beta": beta}
    arrays = {name: a for name, a in given.items() if a is not None}
    context = trace_context(arrays)
    if context.autodiff_reason is not None or context.compiler_reason:
        made, _ = layer_normalization_forward(
            arrays, axes=axes, epsilon=epsilon
        )
        return made["y"]
    run_op = _operation(axes, epsilon)
    return run_op(arrays, owner="LayerNormalization")["y"]


def layer_normalization_forward(
    arrays: dict[str, Any],
    *,
    axes: tuple[int, ...],
    epsilon: float,
    keep: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`y` of eq. 3 over `axes`, sorted and not negative, and the residuals.

    The arrays are `x` and perhaps `gamma` and `beta`. The residuals are
    returned even without `keep`: they cost nothing extra.
    """
    x, gamma, beta = arrays["x"], arrays.get("gamma"), arrays.get("beta")
    z = keras.ops.cast(x, dtypes.wide_dtype(x, gamma, beta))
    # The float32 mean of numbers near 1e4 is off by 5e-4 and more, because it
    # and the sum are rounded. Differences from a number close by are exact.
    origin = _origin(z, axes)
    offset = _mean(z - origin, axes)
    centred = z - origin - offset
    variance = _mean(centred * centred, axes)
    rstd = 1.0 / backend.sqrt(variance + epsilon)
    y = centred * rstd
    if gamma is not None:
        y = y * _spread(gamma, z, axes)
    if beta is not None:
        y = y + _spread(beta, z, axes)
    # The sum of origin and offset would be rounded.
    found = {"origin": origin, "offset": offset, "rstd": rstd}
    return {"y": keras.ops.cast(y, x.dtype)}, arrays | found


def layer_normalization_vjp(
    residuals: dict[str, Any],
    cotangents: dict[str, Any],
    *,
    axes: tuple[int, ...],
) -> dict[str, Any]:
    """Gradients of x, gamma and beta from the forward's residuals.

    With `n = (x - mean) * rstd` and `g = gamma * cotangent`:
    `dx = rstd * (g - mean(g) - n * mean(g * n))`, the means over `axes`;
    `dgamma` and `dbeta` are the sums of `cotangent * n` and of `cotangent`
    over the other axes.
    """
    x, rstd = residuals["x"], residuals["rstd"]
    others = tuple(a for a in range(len(x.shape)) if a not in axes)
    cotangent = keras.ops.cast(cotangents["y"], rstd.dtype)
    centred = keras.ops.cast(x, rstd.dtype) - residuals["origin"]
    centred = centred - residuals["offset"]
    normalized = centred * rstd
    g, factors, gradients = cotangent, None, {}
    if (gamma := residuals.get("gamma")) is not None:
        factors = _spread(gamma, rstd, axes)
        g = cotangent * factors
        dgamma = backend.fused_sum(cotangent * normalized, others)
        gradients["gamma"] = keras.ops.cast(dgamma, gamma.dtype)
    if (beta := residuals.get("beta")) is not None:
        dbeta = backend.fused_sum(cotangent, others)
        gradients["beta"] = keras.ops.cast(dbeta, beta.dtype)
    along = _mean(cotangent * normalized, axes, factors)
    dx = rstd * (g - _mean(cotangent, axes, factors) - normalized * along)
    return gradients | {"x": keras.ops.cast(dx, x.dtype)}


def _origin(x: Any, axes: tuple[int, ...]) -> Any:
    """A number near the elements of each slice: the mean of a few of them.

    It takes several elements far apart, since one may be an outlier, and its
    neighbours too. Their number is a power of two: then the mean has the same
    last digit whether or not a compiler rounds the product with 1/n before it
    subtracts, and the mean of equal numbers is exactly their value.
    """
    size = x.shape[axes[-1]] or 1
    several = next(n for n in (16, 8, 4, 2, 1) if n <= size)
    step = size // several
    index = [slice(1 if a in axes else None) for a in range(len(x.shape))]
    index[axes[-1]] = slice(None, several * step, step)
    return backend.mean(x[tuple(index)], axes, keepdims=True)


def _mean(x: Any, axes: tuple[int, ...], factors: Any = None) -> Any:
    shape = keras.ops.shape(x)
    count = functools.reduce(operator.mul, [shape[axis] for axis in axes])
    total = backend.fused_sum(x, axes, keepdims=True, weights=factors)
    return total / keras.ops.cast(count, x.dtype)


@functools.cache
def _operation(axes: tuple[int, ...], epsilon: float) -> Any:
    return backend.custom_vjp(
        functools.partial(
            layer_normalization_forward, axes=axes, epsilon=epsilon
        ),
        functools.partial(layer_normalization_vjp, axes=axes),
    )


def _as_parameter(name: str, value: Any, sizes: tuple[Any, ...]) -> Any:
    if value is None:
        return None
    if isinstance(value, keras.Variable):  # A layer's, which is one.
        value = keras.ops.convert_to_tensor(value)
    else:
        value = arguments.dense_tensor(name, value)
        arguments.check_numbers(name, value.dtype)
    if tuple(value.shape) != sizes and None not in sizes:
        raise ValueError(
            f"Argument `{name}` must have the sizes of `x` along `axis`, "
            f"{sizes}. Received: {name} of shape {tuple(value.shape)}"
        )
    return value


def _spread(parameter: Any, like: Any, axes: tuple[int, ...]) -> Any:
    """`parameter`, shaped to broadcast over the other axes."""
    rank = len(like.shape)
    shape = [1] * rank
    for axis, size in zip(axes, parameter.shape, strict=True):
        shape[axis] = size
    return keras.ops.cast(keras.ops.reshape(parameter, shape), like.dtype)
