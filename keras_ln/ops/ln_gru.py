"""The layer-normalised GRU (Ba, Kiros and Hinton 2016, eq. 26-28).

Letters: B batch, D input features, U units. Columns stand in the order z, r
(the gates), h (the candidate). `weights` maps names to tensors; a site is
normalised where its gamma is there, the 2U gates apart from the U candidates.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.normalize import affine, normalize, widen


def project(x: Any, weights: dict[str, Any], epsilon: float) -> Any:
    """`LN(x W) + bias`: the inputs' share of the gates, for all steps at once.

    Args:
        x: inputs (..., D).
        weights: kernel (D, 3U) and, where there are, kernel_gamma,
            kernel_beta and bias, each (3U).
        epsilon: number > 0, inside the square root.

    Returns:
        A tensor (..., 3U) in the dtype of `x`.
    """
    z = normalize_parts(
        widen(backend.matmul(x, weights["kernel"])),
        weights.get("kernel_gamma"),
        weights.get("kernel_beta"),
        epsilon,
    )
    return keras.ops.cast(affine(z, None, weights.get("bias")), x.dtype)


def step(
    projected: Any,
    states: tuple[Any],
    weights: dict[str, Any],
    *,
    activation: Callable[[Any], Any] = backend.tanh,
    recurrent_activation: Callable[[Any], Any] = backend.sigmoid,
    epsilon: float,
    recurrent_mask: Any = None,
) -> tuple[Any]:
    """One time step.

    Args:
        projected: what `project` makes of the step's inputs (B, 3U).
        states: h (B, U), alone in a tuple.
        weights: recurrent_kernel (U, 3U) and, where there are,
            recurrent_gamma and recurrent_beta, each (3U).
        activation: of the candidate.
        recurrent_activation: of the gates z and r.
        epsilon: number > 0, inside the square root.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.

    Returns:
        The new h (B, U), alone in a tuple, in the dtype of the old one. All
        between is computed in at least float32.
    """
    (h,) = states
    units = h.shape[-1]
    # The h that is carried may be wider than what the products take.
    shown = keras.ops.cast(h, projected.dtype)
    if recurrent_mask is not None:
        shown = shown * recurrent_mask
    from_h = normalize_parts(
        widen(backend.matmul(shown, weights["recurrent_kernel"])),
        weights.get("recurrent_gamma"),
        weights.get("recurrent_beta"),
        epsilon,
    )
    from_x = widen(projected)
    gates = recurrent_activation(
        from_x[..., : 2 * units] + from_h[..., : 2 * units]
    )
    z, r = gates[..., :units], gates[..., units:]
    candidate = activation(
        from_x[..., 2 * units :] + r * from_h[..., 2 * units :]
    )
    # The update gate opens to the candidate, other than in Keras' GRU.
    new_h = (1.0 - z) * widen(h) + z * candidate
    return (keras.ops.cast(new_h, h.dtype),)


def normalize_parts(z: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalises the gates' two thirds of (..., 3U) and the rest, apart."""
    if gamma is None:
        return z
    split = z.shape[-1] // 3 * 2
    parts = [
        normalize(
            z[..., part],
            gamma[part],
            None if beta is None else beta[part],
            epsilon,
        )
        for part in (slice(None, split), slice(split, None))
    ]
    return keras.ops.concatenate(parts, axis=-1)
