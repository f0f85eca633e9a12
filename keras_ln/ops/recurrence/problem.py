"""One run of a cell over sequences: what is asked for, checked and converted.

Letters: B batch, T time, D input features, U units, n gates, S the steps that
something is given for.
"""

from typing import Any, NamedTuple

import keras

from keras_ln.ops import arguments
from keras_ln.ops.activations import get_activation
from keras_ln.ops.cells.types import Cell, Settings, Switch
from keras_ln.ops.recurrence.zoneout import shares_of

MATRICES = ("kernel", "recurrent_kernel")


class Plan(NamedTuple):
    """What is fixed where a program is made: one program for equal plans."""

    cell: Cell
    settings: Settings
    # Whether to process the last step first.
    go_backwards: bool = False
    # Whether to keep the outputs of every step.
    return_all_outputs: bool = True
    # The constant share of each state that zoneout keeps, h first; or ().
    zoneout: tuple[float, ...] = ()


class Own(NamedTuple):
    """A Keras cell some of whose methods a subclass overrides."""

    cell: Any
    methods: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.cell).__name__


class Problem(NamedTuple):
    """A run that an implementation can accept or refuse.

    To refuse it needs no tensors.
    """

    plan: Plan
    # The dtype of sequences, kernels and outputs.
    dtype: str
    # The caller's name, for messages.
    owner: str
    use_fused: Switch = "auto"
    unroll: bool = False
    # Whether a gradient is likely to be asked for.
    training: bool = True
    own: Own | None = None
    sequences: Any = None  # (B, T, D)
    # Those before the first step (B, U), h first. A state keeps its dtype.
    states: tuple[Any, ...] = ()
    # By name: kernel (D, nU) and recurrent_kernel (U, nU) in the dtype of the
    # sequences, and the cell's vectors in the one that is computed in.
    weights: Any = None
    mask: Any = None  # bool (B, T), False where a row's step is left out
    # Dropout masks, scaled, or None. They are constants without a gradient.
    input_mask: Any = None  # (B, D)
    recurrent_mask: Any = None  # (B, U)
    # For `Cell.norms`, a structure of constants (T, ...) in the order of the
    # visits, or None.
    given: Any = None
    # Of zoneout, by state: bool (B, T, U), True where a unit keeps it, or None.
    choices: tuple[Any, ...] | None = None
    # Bool (B, T), True where a row's states are replaced before that step is
    # visited, by these (B, U), or by zeros for None.
    starts: Any = None
    reset_states: tuple[Any, ...] | None = None

    @property
    def tensors(self) -> tuple[Any, ...]:
        """What `forward` takes after the plan."""
        return (
            self.sequences,
            self.states,
            self.weights,
            (self.input_mask, self.recurrent_mask),
            (
                time_major_mask(self.mask),
                self.given,
                time_major_choices(self.choices),
                time_major_mask(self.starts),
            ),
            self.reset_states,
        )


def time_major_mask(mask: Any) -> Any:
    """The mask (B, T) as the scans take it (T, B, 1), or None."""
    return None if mask is None else keras.ops.swapaxes(mask, 0, 1)[..., None]


def time_major_choices(choices: tuple[Any, ...] | None) -> Any:
    """Choices (B, T, U) by state as the scans take them, or None."""
    if choices is None:
        return None
    return tuple(
        None if of_state is None else keras.ops.swapaxes(of_state, 0, 1)
        for of_state in choices
    )


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
    wide: str | None = None,
    *,
    owner: str = "the op",
    use_fused: Switch = "auto",
    unroll: bool = False,
    training: bool = True,
    own: Own | None = None,
    go_backwards: bool = False,
    return_all_outputs: bool = True,
    zoneout: float = 0.0,
    cell_zoneout: float | None = None,
    **settings: Any,
) -> Problem:
    """What is asked for, without the tensors.

    Args:
        cell: its maths.
        dtype: of sequences, kernels and outputs.
        wide: what is computed in; None for `dtype` or float32.
        owner: see `Problem`, as for what follows.
        use_fused: "auto" runs the first implementation that can, True raises
            where only the loop can, False runs the loop.
        unroll: whether to unroll the loop over time; T must be known.
        training: see there.
        own: see there.
        go_backwards: see `Plan`.
        return_all_outputs: see `Plan`.
        zoneout: probability that a unit keeps its h, in [0, 1).
        cell_zoneout: that of c, where there is one; None for zero.
        **settings: those of `settings_of`.
    """
    wide = wide or arguments.at_least_float32(dtype)
    return Problem(
        Plan(
            cell,
            settings_of(wide, **settings),
            bool(go_backwards),
            bool(return_all_outputs),
            shares_of(
                cell.states,
                {"zoneout": zoneout, "cell_zoneout": cell_zoneout},
                owner,
            ),
        ),
        dtype,
        owner,
        arguments.check_switch("use_fused", use_fused),
        unroll,
        bool(training),
        own,
    )


def tensors_of(
    sequences: Any, weights: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Both as tensors; integer weights become floating point.

    Otherwise directions and statistics would be truncated.

    Raises:
        ValueError: for sequences that are ragged or sparse.
    """
    sequences = arguments.dense_tensor("sequences", sequences)
    wide = arguments.at_least_float32(sequences.dtype)

    def converted(weight: Any) -> Any:
        tensor = keras.ops.convert_to_tensor(weight)
        received = keras.backend.standardize_dtype(tensor.dtype)
        if keras.backend.is_float_dtype(received):
            return tensor
        return keras.ops.cast(tensor, wide)

    return sequences, {name: converted(w) for name, w in weights.items()}


def check_sequences(sequences: Any) -> None:
    """`ValueError` unless this is a floating-point tensor (B, T, D)."""
    arguments.check_floating("sequences", sequences.dtype)
    arguments.check_rank("sequences", sequences.shape, "batch, time, features")
    arguments.check_steps("sequences", sequences.shape)
    arguments.check_known("sequences", sequences.shape, -1)


def check_weights(
    cell: Cell, weights: dict[str, Any], features: int, others: bool
) -> int:
    """U; `ValueError` unless the weights fit the cell.

    Args:
        cell: its maths.
        weights: tensors by name.
        features: D.
        others: whether there may be weights of other names.
    """
    if missing := [name for name in MATRICES if name not in weights]:
        raise ValueError(
            f"Argument `weights` must hold {' and '.join(MATRICES)}. "
            f"Received: weights without {' and '.join(missing)}."
        )
    for name in MATRICES:
        arguments.check_weight(name, weights[name], ("inputs", "columns"))
    units = weights["recurrent_kernel"].shape[0]
    shapes: dict[str, tuple[int, ...]] = {
        "kernel": (features, cell.gates * units),
        "recurrent_kernel": (units, cell.gates * units),
    }
    shapes |= {name: (size * units,) for name, size in cell.vectors.items()}
    for name, weight in weights.items():
        if name in shapes:
            arguments.check_weight(
                name,
                weight,
                shapes[name],
                f" for {features} features and {units} units",
            )
        elif not others:
            raise ValueError(
                f"Argument `weights` may hold {', '.join(shapes)}. "
                f"Received: a weight {name!r}."
            )
    return units


def check_masks(
    sequences: Any,
    units: int,
    mask: Any,
    input_mask: Any,
    recurrent_mask: Any,
) -> tuple[Any, Any, Any]:
    """Converts and checks the masks of `sequences` (B, T, D), or None each.

    Returns:
        The mask as bool (B, T), those of dropout, (B, D) and (B, U), in the
        dtype of the sequences.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    batch, _, features = sequences.shape
    if mask is not None:
        mask = arguments.check_time_mask(mask, sequences.shape)
    checked = [mask]
    for name, dropout, size, letters in (
        ("input_mask", input_mask, features, "batch, features"),
        ("recurrent_mask", recurrent_mask, units, "batch, units"),
    ):
        if dropout is not None:
            dropout = keras.ops.cast(
                keras.ops.convert_to_tensor(dropout), sequences.dtype
            )
            arguments.check_shape(name, dropout.shape, (batch, size), letters)
        checked.append(dropout)
    return tuple(checked)
