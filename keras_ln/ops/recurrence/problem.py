"""One run of a cell over sequences: what is asked for.

Letters: B batch, T time, D input features, U units, n gates.
"""

from typing import Any, NamedTuple

from keras_ln.ops import arguments, dtypes
from keras_ln.ops.activations import get_activation
from keras_ln.ops.cells.types import Cell, Settings, Switch


class Plan(NamedTuple):
    """Static, hashable part of a run; the cache key of its compilation."""

    cell: Cell
    settings: Settings
    # Whether to process the last step first.
    go_backwards: bool = False
    # Whether to keep the outputs of every step.
    return_all_outputs: bool = True
    # The rate of each state where zoneout is an expectation, h first; or ().
    zoneout: tuple[float, ...] = ()


class Overridden(NamedTuple):
    """A Keras cell some of whose methods a subclass overrides."""

    cell: Any
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.cell).__name__


class Tensors(NamedTuple):
    """What `forward` takes after the plan, in this order."""

    sequences: Any  # (B, T, D)
    # Before the first step (B, U), h first. A state keeps its dtype.
    states: tuple[Any, ...]
    # By name: kernel (D, nU) and recurrent_kernel (U, nU) in the dtype of the
    # sequences, and the cell's vectors in the dtype of the computation.
    weights: dict[str, Any]
    # Of the inputs (B, D) and of h (B, U), scaled, or None each. They are
    # constants without a gradient, as all in `per_step`.
    dropout_masks: tuple[Any, Any]
    # The mask (B, T), False where a row's step is left out. The statistics
    # (T, ...) that a cell with batch statistics uses in place of the batch's,
    # a structure in the order of the visits. The choices of zoneout by state
    # (B, T, U), True where a unit keeps it. The starts (B, T), True where a
    # row's states are replaced before that step is visited. Or None each.
    per_step: tuple[Any, Any, Any, Any]
    # What replaces the states at starts (B, U); None for zeros.
    reset_states: tuple[Any, ...] | None


class Problem(NamedTuple):
    """A run that an implementation can accept or refuse.

    To refuse it needs no tensors.
    """

    plan: Plan
    # The dtype of sequences, kernels and outputs.
    dtype: str
    # The caller's name, for messages.
    owner: str
    # "auto" runs the first implementation that can, True raises where only the
    # loop can, False runs the loop.
    use_fused: Switch
    # Whether to unroll the loop over time; T must be known.
    unroll: bool
    # Whether a gradient is likely to be asked for.
    training: bool
    overridden: Overridden | None
    # `Tensors`, or None while nothing runs.
    tensors: Any = None


def settings_of(
    dtype: str,
    *,
    epsilon: float = 1e-5,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    carry_normalized_state: bool = False,
) -> Settings:
    """The settings of a cell from its arguments; `ValueError` for epsilon."""
    return Settings(
        arguments.check_epsilon(epsilon, allow_zero=False),
        get_activation(activation),
        get_activation(recurrent_activation),
        carry_normalized_state,
        dtype,
    )


def problem_of(
    cell: Cell,
    dtype: str,
    *,
    owner: str = "the op",
    use_fused: Switch = "auto",
    unroll: bool = False,
    training: bool = True,
    overridden: Overridden | None = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    zoneout: tuple[float, ...] = (),
    **settings: Any,
) -> Problem:
    """What is asked for, by the fields of `Problem` and of `Plan`.

    The settings are what `settings_of` takes.
    """
    plan = Plan(
        cell,
        settings_of(dtypes.at_least_float32(dtype), **settings),
        bool(go_backwards),
        bool(return_all_outputs),
        zoneout if any(zoneout) else (),
    )
    return Problem(
        plan,
        dtype,
        owner,
        arguments.check_switch("use_fused", use_fused),
        unroll,
        bool(training),
        overridden,
    )
