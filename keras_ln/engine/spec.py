"""A recurrent cell, and the description of a run of it over sequences.

Letters: B batch, D input features, U units, n gates.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from keras_ln.backend import Program
from keras_ln.engine.activations import ACTIVATIONS, Activation

Switch: TypeAlias = bool | Literal["auto"]

# The names of the states, h first.
STATES = ("h", "c")


class Vector(NamedTuple):
    """A weight of a cell besides its two matrices."""

    name: str
    size: int  # in multiples of U
    # The site that the vector scales or shifts, or None for a bias. The site of
    # the simple RNN has no name.
    site: str | None = None
    # Whether `center=False` leaves it out: another shift does the same.
    redundant: bool = False


# Compared by identity: it is a key of the cache of programs.
@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A recurrent cell without its two matrix products.

    Its weights are `kernel` (D, nU), `recurrent_kernel` (U, nU) and `vectors`.
    """

    # `step(from_x, from_h, states, spec, norms)`, with from_x = x W and
    # from_h = h R (B, nU): the new states (B, U), h first, and the statistics
    # by site.
    step: Callable[..., tuple[tuple[Any, ...], Any]]
    # `step_vjp(from_x, from_h, states, spec, norms, factors, cotangents)`:
    # gradients of from_x and from_h, of the states except through from_h (None
    # for none), and of the vectors by name. The factors come from
    # `LayerNorms.factors`, by site.
    step_vjp: Callable[..., tuple[Any, Any, tuple[Any, ...], dict[str, Any]]]
    # `norms(weights, spec, valid, moving)`: the sites of one step. Only batch
    # statistics use the last two: the step's mask (B, 1), and the statistics
    # that replace the batch's. Each may be None.
    norms: Callable[..., Any]
    # n, and the number of states.
    gates: int
    states: int
    # All possible vectors, in the order in which layers create them.
    vectors: tuple[Vector, ...]
    # The fields of `Spec` that steps and norms use; the loops use others.
    options: tuple[str, ...]
    # Whether the statistics are taken over the batch. They are then results
    # too, and `step_vjp` cannot take the rows of all steps at once.
    batch_statistics: bool = False
    # The cell's name in keras-ln-kernels, or None if they do not have it.
    native_name: str | None = None

    # The names of the states, h first, and of all possible weights.
    state_names: tuple[str, ...] = dataclasses.field(init=False)
    weights: tuple[str, ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Names states and weights."""
        vectors = (vector.name for vector in self.vectors)
        names = ("kernel", "recurrent_kernel", *vectors)
        object.__setattr__(self, "state_names", STATES[: self.states])
        object.__setattr__(self, "weights", names)

    def __deepcopy__(self, memo: Any) -> "Cell":
        """Returns the cell itself: copied layers run the same programs."""
        return self


class Spec(NamedTuple):
    """The computation without its arrays; the cache key of its compilation."""

    cell: Cell
    epsilon: float = 1e-5
    activation: Activation = ACTIVATIONS["tanh"]
    recurrent_activation: Activation = ACTIVATIONS["sigmoid"]
    # LSTM only: whether the next step gets the normalised c.
    carry_normalized_state: bool = False
    # Whether to process the last step first.
    go_backwards: bool = False
    # Whether to return the outputs of every step.
    return_all_outputs: bool = True
    # The shares of h and of c that zoneout keeps, if it is an expectation.
    zoneout_share: float = 0.0
    cell_zoneout_share: float = 0.0
    # The dtype of sequences, matrices and outputs.
    dtype: str = "float32"
    # The dtype of the computation, at least float32.
    wide: str = "float32"
    # Whether to launch few kernels at the cost of more arithmetic: the loops
    # keep no statistics and give only the cotangents of states. The rest is
    # computed from these after the loops, for all steps at once.
    few_launches: bool = False
    # Whether no gradient passes the scales of the norms. Rows without variance
    # are then scaled like the others, in fewer kernels.
    values_only: bool = False

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of zoneout, h first."""
        return (self.zoneout_share, self.cell_zoneout_share)


class Overridden(NamedTuple):
    """A Keras cell of a subclass that overrides methods."""

    keras_cell: Any
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.keras_cell).__name__


class How(NamedTuple):
    """The caller of a computation, and how it may be done."""

    # The caller's name, for messages.
    owner: str = "the op"
    # "auto" runs the first implementation that can, True raises an error if
    # only the loop can, False runs the loop.
    use_fused: Switch = "auto"
    # Whether to unroll the loop over time; T must be known.
    unroll: bool = False
    # Whether a gradient is likely to be asked for.
    training: bool = True
    # Whether the output is zero at masked steps.
    zero_output_for_mask: bool = False
    # Whether the output is zero before the first valid step of a row; otherwise
    # it is the initial h.
    zero_before_valid: bool = False
    # The dtypes that the caller gives to arrays that have other ones.
    dtypes: tuple[tuple[str, str], ...] = ()
    overridden: Overridden | None = None
    # The program that runs it, or is being traced.
    program: Program = Program()
