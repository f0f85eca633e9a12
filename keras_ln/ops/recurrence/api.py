"""The one entry to recurrences: a cell over sequences, or for one step.

Letters: B batch, T time, D input features, U units, n gates, S the steps that
something is given for.
"""

from typing import Any

import keras

from keras_ln.ops import arguments
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.normalization.batch_normalization import statistics_of_steps
from keras_ln.ops.recurrence import problem as checks
from keras_ln.ops.recurrence.choice import IMPLEMENTATIONS, choose
from keras_ln.ops.recurrence.forward import run_step
from keras_ln.ops.recurrence.problem import problem_of, settings_of
from keras_ln.ops.recurrence.states import (
    check_resets,
    check_states,
    starts_of,
)
from keras_ln.ops.recurrence.zoneout import choices_of, is_share


def run(
    cell: Cell,
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    mask: Any = None,
    input_mask: Any = None,
    recurrent_mask: Any = None,
    given: Any = None,
    also: Any = None,
    zoneout: Any = 0.0,
    cell_zoneout: Any = None,
    zero_output_for_mask: bool = False,
    reset: Any = None,
    reset_state: Any = None,
    **asked: Any,
) -> tuple[Any, Any, Any, Any]:
    """The cell over time, by the first implementation that can run it.

    Computation and vectors are float64 if any of the tensors is, else float32.

    Args:
        cell: its maths.
        sequences: floating-point tensor (B, T, D).
        initial_states: tensors (B, U), h first, or None for zeros.
        weights: kernel (D, nU), recurrent_kernel (U, nU) and the cell's
            vectors, by name.
        mask: bool tensor (B, T), False where a row's step is left out: the
            states stay, and the output is the h that is carried.
        input_mask: dropout mask of the inputs (B, D), scaled.
        recurrent_mask: dropout mask of h (B, U), scaled.
        given: for `Cell.norms`, a structure of constants (S, ...) in the order
            of the visits, the last of which serves beyond S; or None.
        also: further tensors that help decide the dtype.
        zoneout: what stays of h: a share in [0, 1), or choices, a bool tensor
            (B, T, U) that is True where a unit keeps it.
        cell_zoneout: that of c, for cells with one.
        zero_output_for_mask: whether the output is zero at steps left out.
        reset: bool tensor (B, T), True at the first step, in time, of a new
            sequence: states do not pass from one sequence to another.
        reset_state: where each begins, tensors (B, U) or (1, U), and the row
            too without `initial_states`; None for zeros.
        **asked: what `problem_of` takes.

    Returns:
        `(last_output, outputs, final_states, statistics)`. The states are a
        list if the initial ones are, else a tuple. The outputs are
        those of each step (B, T, U), or without `return_all_outputs` those of
        the last one (B, 1, U), in the dtype of the sequences. Outputs and
        statistics (T, ...) come in the order of processing. The statistics
        have no gradient; they are {} where the cell gives none.

    Raises:
        ValueError: for wrong arguments, named in the message.
    """
    sequences, weights = checks.tensors_of(sequences, weights)
    checks.check_sequences(sequences)
    others = asked.get("own") is not None
    units = checks.check_weights(cell, weights, sequences.shape[-1], others)
    owner = asked.get("owner", "the op")
    reset, reset_states = check_resets(
        cell, reset, reset_state, sequences, units, owner
    )
    as_list = isinstance(initial_states, list)
    if initial_states is None:
        initial_states = reset_states
    states = check_states(initial_states, cell.states, sequences, units)
    constants = keras.tree.flatten((given, also, reset_states))
    dtype = sequences.dtype
    wide = arguments.wide_dtype(
        sequences, *states, *weights.values(), *constants
    )
    zones = {"zoneout": zoneout, "cell_zoneout": cell_zoneout}
    choices = choices_of(
        cell.states,
        zones,
        owner,
        (*sequences.shape[:2], units),
    )
    shares = {name: zone for name, zone in zones.items() if is_share(zone)}
    problem = problem_of(cell, dtype, wide, **asked, **shares)
    go_backwards = problem.plan.go_backwards
    mask, input_mask, recurrent_mask = checks.check_masks(
        sequences, units, mask, input_mask, recurrent_mask
    )
    if given is not None:
        steps = keras.ops.shape(sequences)[1]
        given = keras.tree.map_structure(
            lambda x: keras.ops.cast(statistics_of_steps(x, steps), wide), given
        )
    problem = problem._replace(
        sequences=sequences,
        states=states,
        weights={
            name: keras.ops.cast(w, dtype if name in checks.MATRICES else wide)
            for name, w in weights.items()
        },
        mask=mask,
        input_mask=input_mask,
        recurrent_mask=recurrent_mask,
        given=given,
        choices=choices,
        starts=starts_of(reset, go_backwards),
        reset_states=None
        if reset_states is None
        else tuple(
            keras.ops.cast(new, old.dtype)
            for new, old in zip(reset_states, states, strict=True)
        ),
    )
    chosen = IMPLEMENTATIONS[choose(problem)]
    outputs, states, statistics = chosen.run(problem)
    last_output = keras.ops.cast(states[0], dtype)
    if outputs is None:
        outputs = last_output[:, None]
    if mask is not None and zero_output_for_mask:
        last_output, outputs = _zero_where_masked(
            last_output, outputs, mask, go_backwards
        )
    finals = list(states) if as_list else tuple(states)
    return last_output, outputs, finals, statistics


def step(
    cell: Cell,
    projected: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    *,
    recurrent_mask: Any = None,
    given: Any = None,
    **settings: Any,
) -> tuple[Any, ...]:
    """The states after one step of the cell.

    Args:
        cell: its maths.
        projected: x W (B, nU).
        states: tensors (B, U), h first.
        weights: recurrent_kernel (U, nU) and the cell's vectors, by name.
        recurrent_mask: dropout mask of h (B, U), scaled, or None.
        given: for `Cell.norms`, a structure of constants (B, ...), or None.
        **settings: those of `settings_of`.
    """
    constants = keras.tree.flatten(given)
    wide = arguments.wide_dtype(
        projected, *states, *weights.values(), *constants
    )
    if given is not None:
        given = keras.tree.map_structure(
            lambda x: keras.ops.cast(x, wide), given
        )
    return run_step(
        cell,
        projected,
        states,
        weights,
        settings_of(wide, **settings),
        recurrent_mask=recurrent_mask,
        given=given,
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
