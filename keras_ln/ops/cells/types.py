"""A recurrent cell, and what is asked for where it runs over sequences.

Letters: B batch, D input features, U units, n gates.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from keras_ln.ops.activations import ACTIVATIONS, Activation

Switch: TypeAlias = bool | Literal["auto"]

# The names of the states, h first.
STATES = ("h", "c")


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

    # `step(from_x, from_h, states, spec, norms)`, where from_x is x W and
    # from_h is h R (B, nU): the new states (B, U), h first, and the
    # statistics by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(from_x, from_h, states, spec, norms, factors, cotangents)`:
    # gradients of from_x and from_h, of the states apart from what flows
    # through from_h (None for none), and of the vectors by name. The factors
    # are what `LayerNorms.factors` makes of the statistics, by site.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, spec, valid, moving)`: the sites of one step. Of the
    # last two, the step's mask (B, 1) and the statistics to use in place of the
    # batch's, or None each, only batch statistics take note.
    norms: Callable[..., Any]
    # n, and the number of states.
    gates: int
    states: int
    # The vectors that there can be, in the order in which layers create them.
    vectors: tuple[Vector, ...]
    # The fields of `Spec` that steps and norms heed; the loops heed others.
    options: tuple[str, ...]
    # Whether the statistics are taken of the batch. They are then results too,
    # and `step_vjp` cannot take the rows of all steps at once.
    batch_statistics: bool = False
    # The cell's name in keras-ln-kernels, where it is one of theirs.
    native_name: str | None = None

    # The names of the states, h first, and of the weights that there can be.
    state_names: tuple[str, ...] = dataclasses.field(init=False)
    weights: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Names states and weights."""
        vectors = (vector.name for vector in self.vectors)
        names = ("kernel", "recurrent_kernel", *vectors)
        object.__setattr__(self, "state_names", STATES[: self.states])
        object.__setattr__(self, "weights", names)

    def __deepcopy__(self, memo: Any) -> "Cell":
        """Itself: layers are copied with it, and run the same programs."""
        return self


class Spec(NamedTuple):
    """What is computed, beside the arrays; the cache key of its compilation."""

    cell: Cell
    epsilon: float = 1e-5
    activation: Activation = ACTIVATIONS["tanh"]
    recurrent_activation: Activation = ACTIVATIONS["sigmoid"]
    # Of the LSTM: whether the next step gets the normalised c.
    carry_normalized_state: bool = False
    # Whether to process the last step first.
    go_backwards: bool = False
    # Whether to return the outputs of every step.
    return_all_outputs: bool = True
    # The shares of h and of c that stay where zoneout is an expectation.
    zoneout_share: float = 0.0
    cell_zoneout_share: float = 0.0
    # The dtype of sequences, matrices and outputs.
    dtype: str = "float32"
    # The dtype of the computation, at least float32.
    wide: str = "float32"
    # Whether to launch few kernels at the cost of more arithmetic: the loops
    # keep no statistics and give the cotangents of states alone, and the rest
    # is computed from these after the loops, of all steps at once.
    few_launches: bool = False
    # Whether no gradient goes through the scales of the norms. Rows without
    # variance are then scaled like the others, in fewer kernels.
    values_only: bool = False

    @property
    def shares(self) -> tuple[float, ...]:
        """Those of zoneout, of h first."""
        return (self.zoneout_share, self.cell_zoneout_share)


class Overridden(NamedTuple):
    """A Keras cell some of whose methods a subclass overrides."""

    keras_cell: Any
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.keras_cell).__name__


class How(NamedTuple):
    """Who asks for a computation, and how it may be done."""

    # The caller's name, for messages.
    owner: str = "the op"
    # "auto" runs the first implementation that can, True raises where only the
    # loop can, False runs the loop.
    use_fused: Switch = "auto"
    # Whether to unroll the loop over time; T must be known.
    unroll: bool = False
    # Whether a gradient is likely to be asked for.
    training: bool = True
    # Whether the output is zero where the mask leaves a step out.
    zero_output_for_mask: bool = False
    # The dtypes that the caller gives to arrays, where these are not their own.
    dtypes: tuple[tuple[str, str], ...] = ()
    overridden: Overridden | None = None
