"""The scan forward in time: what every implementation in Python runs.

Outside the loop over time stands the input product, for all steps at once.
Letters: B batch, T time, D input features, U units, n gates.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.cells.types import Cell, Settings
from keras_ln.ops.recurrence.masked_scan import masked_scan
from keras_ln.ops.recurrence.problem import Plan
from keras_ln.ops.recurrence.zoneout import kept_of, zoned


def forward(
    plan: Plan,
    sequences: Any,
    states: tuple[Any, ...],
    weights: dict[str, Any],
    dropout_masks: tuple[Any, Any],
    per_step: tuple[Any, ...],
    reset_states: tuple[Any, ...] | None = None,
    *,
    keep: bool = False,
    lean: bool = False,
    value_only: bool = False,
    unroll: bool = False,
    own_cell: Any = None,
) -> tuple[Any, Any]:
    """The cell over time.

    Args:
        plan: see there. The tensors that follow are those of a `Problem`.
        sequences: inputs (B, T, D).
        states: those before the first step, tensors (B, U), h first.
        weights: kernel (D, nU), recurrent_kernel (U, nU) and vectors, by name.
        dropout_masks: of the inputs (B, D) and of h (B, U), or None each.
        per_step: the mask (T, B, 1), what is given to each step, in the order
            of the visits, the choices of zoneout by state (T, B, U), and the
            starts (T, B, 1), True where the states are replaced before the
            step, or None each.
        reset_states: what replaces them, tensors (B, U); None for zeros.
        keep: whether a gradient needs the residuals, which are otherwise None.
        lean: whether the loop keeps no statistics: recomputing them after the
            loop launches fewer kernels.
        value_only: that of `Cell.norms`.
        unroll: whether to unroll the loop over time.
        own_cell: a Keras cell whose `project` and `step` to run in place
            of the plan's, or None.

    Returns:
        `((outputs, final_states, statistics), residuals)`. The outputs
        (B, T, U), or None where the plan asks for the last one alone, and the
        statistics (T, ...), {} where the cell gives none, come in the order of
        the visits.
    """
    cell, settings, _, return_all_outputs, shares = plan
    input_mask, recurrent_mask = dropout_masks
    inputs, (valid, given, choices, starts) = in_order_of_visits(
        plan, sequences, input_mask, per_step
    )
    multiply = project if own_cell is None else own_cell.project
    projected = multiply(inputs, weights)

    def step(row: Any, states: Any, valid: Any) -> Any:
        projected_t, given_t, choices_t = row
        kept = kept_of(shares, choices_t)
        if own_cell is not None:
            new = own_cell.step(projected_t, states, weights, recurrent_mask)
            return zoned(new, states, kept), ({}, None)
        new, statistics, from_h = run_step(
            cell,
            projected_t,
            states,
            weights,
            settings,
            recurrent_mask=recurrent_mask,
            valid=valid,
            given=given_t,
            value_only=value_only,
        )
        if lean or not (keep or cell.gives_statistics):
            statistics = {}
        record = (statistics, (states, from_h) if keep else None)
        return zoned(new, states, kept), record

    def output(states: tuple[Any, ...]) -> Any:
        if not return_all_outputs:
            return None
        return keras.ops.cast(states[0], sequences.dtype)

    final_states, outputs, (statistics, kept) = masked_scan(
        step,
        (projected, given, choices),
        states,
        valid,
        starts=starts,
        reset_states=reset_states,
        output=output,
        unroll=unroll,
    )
    if return_all_outputs:
        outputs = keras.ops.transpose(outputs, (1, 0, 2))
    residuals = None
    if keep:
        args = (
            *(sequences, states, weights, dropout_masks, per_step),
            reset_states,
        )
        residuals = (args, projected, statistics, kept)
    given_statistics = statistics if cell.gives_statistics else {}
    return (outputs, final_states, given_statistics), residuals


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
    h = h_for_product(states[0], projected.dtype, recurrent_mask)
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


def project(inputs: Any, weights: dict[str, Any]) -> Any:
    """`x W` (..., nU) of inputs (..., D), for all steps at once."""
    return backend.matmul(inputs, weights["kernel"])


def h_for_product(h: Any, dtype: str, recurrent_mask: Any) -> Any:
    """What the product sees of h (..., B, U); the carried h may be wider."""
    h = keras.ops.cast(h, dtype)
    if recurrent_mask is None:
        return h
    return h * keras.ops.cast(recurrent_mask, dtype)


def in_order_of_visits(
    plan: Plan, sequences: Any, input_mask: Any, per_step: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """What the loop goes over, from the first row to the last.

    tf2onnx takes whatever a loop writes for its outputs in the order of its
    steps, hence no loop that goes backwards.

    Returns:
        The inputs that are multiplied (T, B, D), and `per_step`.
    """
    inputs = keras.ops.transpose(sequences, (1, 0, 2))
    if input_mask is not None:
        inputs = inputs * input_mask
    valid, given, choices, starts = per_step
    inputs, valid, choices, starts = visits(
        (inputs, valid, choices, starts), plan.go_backwards
    )
    return inputs, (valid, given, choices, starts)


def visits(rows: Any, go_backwards: bool) -> Any:
    """Rows (T, ...) of a structure, from time to the order of visits or back.

    `None` stays.
    """
    if not go_backwards:
        return rows
    return keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.flip(x, axis=0), rows
    )
