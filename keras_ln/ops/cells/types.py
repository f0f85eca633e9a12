"""What the ops know of a recurrent cell: its maths, and what it is set to.

Letters: B batch, D input features, U units, n gates.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import keras

from keras_ln.ops.activations import Activation

Switch: TypeAlias = bool | Literal["auto"]


class Settings(NamedTuple):
    """What a step needs beside tensors."""

    epsilon: float
    activation: Activation
    # Ignored by cells without gates.
    recurrent_activation: Activation
    # Of the LSTM: whether the next step gets the normalised c.
    carry_normalized_state: bool = False
    # The dtype of the computation, at least float32.
    dtype: str = "float32"

    def widen(self, x: Any) -> Any:
        """`x` in the dtype that is computed in."""
        return keras.ops.cast(x, self.dtype)


# Compared by identity: it is a key of the cache of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
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
    # step. valid (B, 1) is the step's mask or None, given what the problem has
    # been given for it, value_only that of `LayerNorms`.
    norms: Callable[..., Any]
    # n, and the number of states.
    gates: int
    states: int
    # The vectors that there can be, and their sizes in multiples of U.
    vectors: Mapping[str, int]
    # Whether the statistics are results too. They are then those of a whole
    # step: `step_vjp` cannot take the rows of all steps at once.
    gives_statistics: bool = False
    # The cell's name in keras-ln-kernels, where it is one of theirs.
    in_kernels: str | None = None
