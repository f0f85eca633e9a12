"""One step of a cell: its two products, and what a mask makes of it.

Letters: B batch, U units, n gates.
"""

import functools
from typing import Any, NamedTuple

from keras_ln import backend
from keras_ln.ops.cells.types import Cell, Settings
from keras_ln.ops.recurrence.problem import Plan
from keras_ln.ops.recurrence.zoneout import apply_zoneout


class Loop(NamedTuple):
    """What all steps of a run have in common."""

    plan: Plan
    weights: dict[str, Any]
    recurrent_mask: Any  # dropout mask of h (B, U), scaled, or None
    # What replaces the states at starts (B, U), where there are any.
    reset_states: tuple[Any, ...] | None
    # The dtype of the outputs.
    dtype: str
    # Whether a gradient needs the states and the products of every step.
    keep: bool
    # Whether a gradient or the caller needs the statistics of every step.
    keep_statistics: bool
    # A Keras cell whose `step` to run in place of the plan's, or None.
    cell: Any


def visit(loop: Loop, states: tuple[Any, ...], row: Any) -> tuple[Any, Any]:
    """A step over time that a mask may leave out, and that may start anew.

    Args:
        loop: see there.
        states: tensors (B, U) before the step, h first.
        row: x W (B, nU); valid (B, 1), False where a row's step is left out
            and its states stay; the statistics to use, the choices of zoneout
            by state (B, U), and start (B, 1), True where a row's states are
            replaced before the step; or None each.

    Returns:
        The states, each in its dtype, and `(output, (statistics, residuals))`:
        the output (B, U) or None, statistics by site or {}, and residuals
        `(states before the step, h R)` or None.
    """
    projected, valid, moving, choices, start = row
    plan = loop.plan
    if start is not None:
        states = tuple(
            backend.where(start, new, old)
            for new, old in zip(loop.reset_states or (), states, strict=True)
        )
    statistics: dict[str, Any] = {}
    from_h = None
    if loop.cell is not None:
        new = loop.cell.step(
            projected, states, loop.weights, loop.recurrent_mask
        )
    else:
        new, statistics, from_h = run_step(
            plan.cell,
            projected,
            states,
            loop.weights,
            plan.settings,
            recurrent_mask=loop.recurrent_mask,
            valid=valid,
            moving=moving,
        )
    record = (
        statistics if loop.keep_statistics else {},
        (states, from_h) if loop.keep else None,
    )
    if plan.zoneout or choices is not None:
        new = apply_zoneout(new, states, plan.zoneout, choices)
    if valid is not None:
        new = tuple(
            backend.where(valid, after, before)
            for after, before in zip(new, states, strict=True)
        )
    output = None
    if plan.return_all_outputs:
        output = backend.cast(new[0], loop.dtype)
    return tuple(new), (output, record)


def run_step(
    cell: Cell,
    projected: Any,  # x W (B, nU)
    states: tuple[Any, ...],  # tensors (B, U), h first
    weights: dict[str, Any],  # recurrent_kernel (U, nU), and the vectors
    settings: Settings,
    *,
    recurrent_mask: Any = None,  # dropout mask of h (B, U), scaled
    valid: Any = None,  # these two: see `Cell.norms`
    moving: Any = None,
) -> tuple[tuple[Any, ...], Any, Any]:
    """One step of `cell`, computed in the dtype of its settings.

    Returns:
        The new states, each in the dtype of the old one, the statistics of
        the step, and the product h R (B, nU).
    """
    h = h_for_product(states[0], projected.dtype, recurrent_mask)
    from_h = backend.matmul(h, weights["recurrent_kernel"])
    widen = functools.partial(backend.cast, dtype=settings.dtype)
    new_states, statistics = cell.step(
        widen(projected),
        widen(from_h),
        tuple(map(widen, states)),
        settings,
        cell.norms(weights, settings, valid, moving),
    )
    new_states = tuple(
        backend.cast(new, old.dtype)
        for new, old in zip(new_states, states, strict=True)
    )
    return new_states, statistics, from_h


def h_for_product(h: Any, dtype: Any, recurrent_mask: Any) -> Any:
    """What the product sees of h (..., B, U); the carried h may be wider."""
    h = backend.cast(h, dtype)
    if recurrent_mask is None:
        return h
    return h * backend.cast(recurrent_mask, dtype)
