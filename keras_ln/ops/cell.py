"""One time step of a recurrent cell, as the ops see it.

Letters: B batch, D input features, U units, n gates.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.ops.activations import Activation
from keras_ln.ops.normalize import LayerNorms


class Settings(NamedTuple):
    """What a step needs beside tensors."""

    epsilon: float
    activation: Activation
    # None in cells without gates.
    recurrent_activation: Any = None
    # Of the LSTM: whether the next step gets the normalised c.
    carry_normalized_state: bool = False
    # What is computed in, at least float32.
    dtype: str = "float32"

    def widen(self, x: Any) -> Any:
        """`x` in the dtype that is computed in."""
        return keras.ops.cast(x, self.dtype)


class Cell(NamedTuple):
    """The maths of a recurrent cell, without its two matrix products."""

    # `step(from_x, from_h, states, settings, norms)`, where from_x is x W and
    # from_h is h R (B, nU): the new states (B, U), h first, and the
    # statistics by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(from_x, from_h, states, settings, norms, factors, cotangents)`:
    # gradients of from_x and from_h, of the states apart from what flows
    # through from_h (None for none), and of the vectors by name. The factors
    # are those of `LayerNorms` by site.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, epsilon, valid, given, value_only)`: the sites of one
    # step. valid (B, 1) is the step's mask or None, given what `run` was given
    # for it, value_only that of `LayerNorms`.
    norms: Callable[..., Any]
    # Whether the statistics are results too. They are then those of a whole
    # step: `step_vjp` cannot take the rows of all steps at once.
    gives_statistics: bool = False


def layer_norms(
    weights: Any, epsilon: float, valid: Any, given: Any, value_only: bool
) -> LayerNorms:
    """Sites with the statistics of each row, which no mask concerns."""
    return LayerNorms(weights, epsilon, value_only)


def project(inputs: Any, weights: dict[str, Any]) -> Any:
    """`x W` (..., nU) of inputs (..., D), for all steps at once."""
    return backend.matmul(inputs, weights["kernel"])


def run_step(
    cell: Cell,
    projected: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    settings: Settings,
    *,
    recurrent_mask: Any = None,
    valid: Any = None,
    given: Any = None,
    value_only: bool = False,
) -> tuple[tuple[Any, ...], Any, Any]:
    """One step of `cell`, computed in the dtype of its settings.

    Args:
        cell: its maths.
        projected: x W (B, nU).
        states: tensors (B, U), h first.
        weights: recurrent_kernel (U, nU) and the cell's vectors, by name.
        settings: see there.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        valid: see `Cell.norms`.
        given: see `Cell.norms`.
        value_only: see `Cell.norms`.

    Returns:
        The new states, each in the dtype of the old one, the statistics of
        the step, and the product h R (B, nU).
    """
    h = shown(states[0], projected.dtype, recurrent_mask)
    from_h = backend.matmul(h, weights["recurrent_kernel"])
    new_states, statistics = cell.step(
        settings.widen(projected),
        settings.widen(from_h),
        tuple(map(settings.widen, states)),
        settings,
        cell.norms(weights, settings.epsilon, valid, given, value_only),
    )
    new_states = tuple(
        keras.ops.cast(new, old.dtype)
        for new, old in zip(new_states, states, strict=True)
    )
    return new_states, statistics, from_h


def shown(h: Any, dtype: str, recurrent_mask: Any) -> Any:
    """What the product sees of h (..., B, U); the carried h may be wider."""
    h = keras.ops.cast(h, dtype)
    if recurrent_mask is None:
        return h
    return h * keras.ops.cast(recurrent_mask, dtype)
