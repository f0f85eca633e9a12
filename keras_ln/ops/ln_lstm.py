"""The layer-normalised LSTM (Ba, Kiros and Hinton 2016, eq. 20-22).

Letters: B batch, D input features, U units. Gates stand in the order i, f, c,
o. `weights` maps names to tensors; a site is normalised where its gamma is
there, so that without any this is the plain LSTM.
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
        weights: kernel (D, 4U) and, where there are, kernel_gamma,
            kernel_beta and bias, each (4U).
        epsilon: number > 0, inside the square root.

    Returns:
        A tensor (..., 4U) in the dtype of `x`.
    """
    z = normalize(
        widen(backend.matmul(x, weights["kernel"])),
        weights.get("kernel_gamma"),
        weights.get("kernel_beta"),
        epsilon,
    )
    return keras.ops.cast(affine(z, None, weights.get("bias")), x.dtype)


def step(
    projected: Any,
    states: tuple[Any, Any],
    weights: dict[str, Any],
    *,
    activation: Callable[[Any], Any] = backend.tanh,
    recurrent_activation: Callable[[Any], Any] = backend.sigmoid,
    epsilon: float,
    recurrent_mask: Any = None,
) -> tuple[Any, Any]:
    """One time step.

    Args:
        projected: what `project` makes of the step's inputs (B, 4U).
        states: h and c, each (B, U).
        weights: recurrent_kernel (U, 4U) and, where there are,
            recurrent_gamma, recurrent_beta, each (4U), state_gamma and
            state_beta, each (U).
        activation: of the candidate and of the cell state that is shown.
        recurrent_activation: of the gates i, f and o.
        epsilon: number > 0, inside the square root.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.

    Returns:
        The new h and c (B, U), each in the dtype of the old one. All between
        is computed in at least float32.
    """
    h, c = states
    shown = h if recurrent_mask is None else h * recurrent_mask
    z = widen(projected) + normalize(
        widen(backend.matmul(shown, weights["recurrent_kernel"])),
        weights.get("recurrent_gamma"),
        weights.get("recurrent_beta"),
        epsilon,
    )
    i, f, candidate, o = keras.ops.split(z, 4, axis=-1)
    new_c = recurrent_activation(f) * widen(c)
    new_c = new_c + recurrent_activation(i) * activation(candidate)
    # The carried c is not normalised, only what h sees of it.
    normalized = normalize(
        new_c, weights.get("state_gamma"), weights.get("state_beta"), epsilon
    )
    new_h = recurrent_activation(o) * activation(normalized)
    return keras.ops.cast(new_h, h.dtype), keras.ops.cast(new_c, c.dtype)
