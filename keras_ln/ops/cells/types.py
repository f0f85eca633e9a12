"""What the ops know of a recurrent cell: its equations, and their settings.

Letters: B batch, D input features, U units, n gates.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

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
    # Whether no gradient goes through the scales of the norms. Rows without
    # variance are then scaled like the others, in fewer kernels.
    value_only: bool = False


class Vector(NamedTuple):
    """A weight of a cell beside its two matrices."""

    name: str
    size: int  # in multiples of U
    # The site that the vector scales or shifts, or None for a bias. The site of
    # the simple RNN has no name.
    site: str | None = None
    # Whether it is left out where nothing is centred twice: `center=False`.
    redundant: bool = False


# Compared by identity: it is a key of the cache of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A recurrent cell without its two matrix products.

    Its weights are `kernel` (D, nU), `recurrent_kernel` (U, nU) and `vectors`.
    """

    # `step(from_x, from_h, states, settings, norms)`, where from_x is x W and
    # from_h is h R (B, nU): the new states (B, U), h first, and the
    # statistics by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(from_x, from_h, states, settings, norms, factors, cotangents)`:
    # gradients of from_x and from_h, of the states apart from what flows
    # through from_h (None for none), and of the vectors by name. The factors
    # are what `LayerNorms.factors` makes of the statistics, by site.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, settings, valid, moving)`: the sites of one step. Of the
    # last two, the step's mask (B, 1) and the statistics to use in place of the
    # batch's, or None each, only batch statistics take note.
    norms: Callable[..., Any]
    # n, and the number of states.
    gates: int
    states: int
    # The vectors that there can be, in the order in which layers create them.
    vectors: tuple[Vector, ...]
    # Whether the statistics are taken of the batch. They are then results too,
    # and `step_vjp` cannot take the rows of all steps at once.
    batch_statistics: bool = False
    # The cell's name in keras-ln-kernels, where it is one of theirs.
    in_kernels: str | None = None

    def __deepcopy__(self, memo: Any) -> "Cell":
        """Itself: layers are copied with it, and run the same programs."""
        return self
