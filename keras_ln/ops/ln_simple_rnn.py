"""The layer-normalised simple RNN (Ba, Kiros and Hinton 2016, eq. 4).

Letters: B batch, D input features, U units. `weights` maps names to tensors.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.normalize import affine, normalize, widen


def project(x: Any, weights: dict[str, Any], epsilon: float) -> Any:
    """`x W + bias`: the inputs' share of the sum, for all steps at once.

    Args:
        x: inputs (..., D).
        weights: kernel (D, U) and, where there is one, bias (U).
        epsilon: not used: the sum is normalised, not its parts.

    Returns:
        A tensor (..., U) in the dtype of `x`.
    """
    z = widen(backend.matmul(x, weights["kernel"]))
    return keras.ops.cast(affine(z, None, weights.get("bias")), x.dtype)


def step(
    projected: Any,
    states: tuple[Any],
    weights: dict[str, Any],
    *,
    activation: Callable[[Any], Any] = backend.tanh,
    epsilon: float,
    recurrent_mask: Any = None,
) -> tuple[Any]:
    """One time step.

    Args:
        projected: what `project` makes of the step's inputs (B, U).
        states: h (B, U), alone in a tuple.
        weights: recurrent_kernel (U, U), gamma (U), beta (U).
        activation: of the normalised sum.
        epsilon: number > 0, inside the square root.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.

    Returns:
        The new h (B, U), alone in a tuple, in the dtype of the old one. All
        between is computed in at least float32.
    """
    (h,) = states
    shown = h if recurrent_mask is None else h * recurrent_mask
    z = widen(projected)
    z = z + widen(backend.matmul(shown, weights["recurrent_kernel"]))
    z = normalize(z, weights["gamma"], weights["beta"], epsilon)
    return (keras.ops.cast(activation(z), h.dtype),)
