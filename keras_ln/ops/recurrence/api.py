"""The one entry to recurrences: a cell over sequences, or for one step.

Letters: B batch, T time, D input features, U units, n gates, S the steps that
have moving statistics.
"""

from typing import Any, NamedTuple

import keras

from keras_ln import backend
from keras_ln.ops import dtypes
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.normalization.batch_normalization import statistics_of_steps
from keras_ln.ops.recurrence import checks
from keras_ln.ops.recurrence.choice import IMPLEMENTATIONS, choose
from keras_ln.ops.recurrence.problem import (
    Problem,
    Tensors,
    problem_of,
    settings_of,
)
from keras_ln.ops.recurrence.step import run_step
from keras_ln.ops.recurrence.zoneout import split_zoneout


class Moving(NamedTuple):
    """The moving statistics of a cell with batch statistics."""

    # A structure of tensors (S, ...) in the order of the visits, the last of
    # which serves beyond S.
    statistics: Any
    # Whether these normalise, in place of the statistics of the batch.
    used: bool


def run(
    cell: Cell,
    sequences: Any,  # (B, T, D), floating point
    initial_states: Any,  # tensors (B, U), h first, or None for zeros
    weights: dict[str, Any],  # kernel, recurrent_kernel and the vectors
    *,
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    moving: Moving | None = None,
    zoneout: Any = 0.0,
    cell_zoneout: Any = None,
    zero_output_for_mask: bool = False,
    reset: Any = None,
    reset_state: Any = None,
    states_name: str = "initial_states",
    **options: Any,
) -> tuple[Any, Any, Any, Any]:
    """The cell over time, by the first implementation that can run it.

    Computation and vectors are float64 if any of the tensors is, else float32.

    Arguments are those of the public functions, and `states_name`, what errors
    call `initial_states`; `problem_of` takes the options.

    Returns:
        `(last_output, outputs, final_states, statistics)`. The states are a
        list if the initial ones are, else a tuple. The outputs (B, T, U), or
        without `return_all_outputs` the last one alone (B, 1, U), are in the
        dtype of the sequences. Outputs and statistics (T, ...) come in the
        order of processing. The statistics have no gradient; they are {} where
        the cell gives none.

    Raises:
        ValueError: for wrong arguments, named in the message.
    """
    sequences, weights = checks.tensors_of(sequences, weights)
    checks.check_sequences(sequences)
    units = checks.check_weights(cell, weights, sequences.shape[-1])
    owner = options.get("owner", "the op")
    reset, reset_states = checks.check_resets(
        cell, reset, reset_state, sequences, units, owner
    )
    as_list = isinstance(initial_states, list)
    if initial_states is None:
        initial_states = reset_states
    states = checks.check_states(
        initial_states, cell.states, sequences, units, states_name
    )
    rates, choices = split_zoneout(
        cell.states,
        owner,
        (*sequences.shape[:2], units),
        zoneout=zoneout,
        cell_zoneout=cell_zoneout,
    )
    mask, *dropout_masks = checks.check_masks(
        sequences, units, mask, input_mask, recurrent_mask
    )
    last_output, outputs, states, statistics = run_problem(
        problem_of(cell, sequences.dtype, zoneout=rates, **options),
        sequences,
        states,
        weights,
        mask=mask,
        dropout_masks=tuple(dropout_masks),
        moving=moving,
        choices=choices,
        reset=reset,
        reset_states=reset_states,
        zero_output_for_mask=zero_output_for_mask,
    )
    return last_output, outputs, list(states) if as_list else states, statistics


def run_problem(
    problem: Problem,
    sequences: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    *,
    mask: Any = None,
    dropout_masks: tuple[Any, Any] = (None, None),
    moving: Moving | None = None,
    choices: tuple[Any, ...] | None = None,
    reset: Any = None,
    reset_states: tuple[Any, ...] | None = None,
    zero_output_for_mask: bool = False,
) -> tuple[Any, Any, tuple[Any, ...], Any]:
    """`run`, of tensors that are known to fit.

    Masks of dropout are in the dtype of the sequences, the choices are
    zoneout's by state, and states of resets are tensors (B, U).
    """
    plan, dtype = problem.plan, sequences.dtype
    if mask is not None:
        # Whatever stands at masked steps is multiplied by zero in the kernel's
        # gradient, and zero times NaN is NaN.
        sequences = backend.where(mask[..., None], sequences, 0.0)
    constants = keras.tree.flatten(moving.statistics) if moving else []
    wide = dtypes.wide_dtype(
        sequences, *states, *weights.values(), *(reset_states or ()), *constants
    )
    if reset_states is not None:
        reset_states = tuple(
            backend.cast(new, old.dtype)
            for new, old in zip(reset_states, states, strict=True)
        )
    if plan.settings.dtype != wide:
        plan = plan._replace(settings=plan.settings._replace(dtype=wide))
    tensors = Tensors(
        sequences,
        states,
        {
            name: backend.cast(w, dtype if name in checks.MATRICES else wide)
            for name, w in weights.items()
        },
        dropout_masks,
        (
            mask,
            moving and _statistics_of_steps(moving, sequences, wide),
            choices,
            _starts(reset) if plan.go_backwards else reset,
        ),
        reset_states,
    )
    problem = problem._replace(plan=plan, dtype=dtype, tensors=tensors)
    chosen = IMPLEMENTATIONS[choose(problem)]
    outputs, states, statistics = chosen.run(problem)
    last_output = backend.cast(states[0], dtype)
    if outputs is None:
        outputs = last_output[:, None]
    if mask is not None and zero_output_for_mask:
        last_output, outputs = _zero_where_masked(
            last_output, outputs, mask, plan.go_backwards
        )
    return last_output, outputs, tuple(states), statistics


def _statistics_of_steps(moving: Moving, sequences: Any, wide: str) -> Any:
    """The moving statistics (T, ...) that are to be used, or None."""
    if not moving.used:
        return None
    steps = keras.ops.shape(sequences)[1]
    return keras.tree.map_structure(
        lambda x: backend.cast(statistics_of_steps(x, steps), wide),
        moving.statistics,
    )


def _starts(reset: Any) -> Any:
    """Where states change going backwards, for flags (B, T) of first steps.

    The last step of a sequence, in time, is visited first.
    """
    if reset is None:
        return None
    last = keras.ops.zeros_like(reset[:, :1])
    return keras.ops.concatenate([reset[:, 1:], last], axis=1)


def step(
    cell: Cell,
    projected: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    *,
    recurrent_mask: Any = None,
    moving: Any = None,
    **settings: Any,
) -> tuple[Any, ...]:
    """The states after one step of the cell, from what `run_step` takes.

    The settings are what `settings_of` takes; `moving` is a structure of
    constants (B, ...), or None.
    """
    constants = keras.tree.flatten(moving)
    wide = dtypes.wide_dtype(projected, *states, *weights.values(), *constants)
    if moving is not None:
        moving = keras.tree.map_structure(
            lambda x: backend.cast(x, wide), moving
        )
    return run_step(
        cell,
        projected,
        states,
        weights,
        settings_of(wide, **settings),
        recurrent_mask=recurrent_mask,
        moving=moving,
    )[0]


def _zero_where_masked(
    last_output: Any,  # (B, U)
    outputs: Any,  # (B, T, U), or the last one alone (B, 1, U)
    mask: Any,  # (B, T)
    go_backwards: bool,
) -> tuple[Any, Any]:
    """Both outputs of a sequence with zeros at the steps left out."""
    if go_backwards:
        mask = keras.ops.flip(mask, axis=1)
    valid = mask[:, -1:]
    last_output = keras.ops.where(
        valid, last_output, keras.ops.zeros_like(last_output)
    )
    if outputs.shape[1] != 1:
        valid = mask
    outputs = keras.ops.where(
        valid[..., None], outputs, keras.ops.zeros_like(outputs)
    )
    return last_output, outputs
