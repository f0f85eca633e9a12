"""The scan forward in time: what every implementation in Python runs.

Outside the loop over time stands the input product, for all steps at once.
Letters: B batch, T time, D input features, U units, n gates.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.recurrence.problem import Plan
from keras_ln.ops.recurrence.step import Loop, visit


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
    unroll: bool = False,
    cell: Any = None,
) -> tuple[Any, Any]:
    """The cell over time, for the fields of `Tensors`.

    At a step that the mask leaves out, the states stay: before the first valid
    step they are the initial ones, on every backend.

    With `keep` a gradient needs the residuals, which are otherwise None. A
    `lean` loop keeps no statistics: recomputing them after the loop launches
    fewer kernels. `cell` is a Keras cell whose `project` and `step` run in
    place of the plan's, or None.

    Returns:
        `((outputs, final_states, statistics), residuals)`. The outputs
        (B, T, U), or None where the plan asks for the last one alone, and the
        statistics (T, ...), {} where the cell gives none, come in the order of
        the visits.
    """
    input_mask, recurrent_mask = dropout_masks
    inputs, rows = in_order_of_visits(plan, sequences, input_mask, per_step)
    products = project if cell is None else cell.project
    projected = products(inputs, weights)
    after_reset = reset_states
    if rows[-1] is not None and reset_states is None:
        after_reset = tuple(map(keras.ops.zeros_like, states))
    gives_statistics = plan.cell.batch_statistics
    loop = Loop(
        plan,
        weights,
        recurrent_mask,
        after_reset,
        sequences.dtype,
        keep,
        not lean and (keep or gives_statistics),
        cell,
    )
    scan = _unrolled if unroll else backend.scan
    final_states, (outputs, (statistics, made)) = scan(
        functools.partial(visit, loop), states, (projected, *rows)
    )
    if outputs is not None:
        outputs = keras.ops.transpose(outputs, (1, 0, 2))
    residuals = None
    if keep:
        residuals = (
            (sequences, states, weights, dropout_masks, per_step, reset_states),
            projected,
            statistics,
            made,
        )
    if not gives_statistics:
        statistics = {}
    return (outputs, final_states, statistics), residuals


def project(inputs: Any, weights: dict[str, Any]) -> Any:
    """`x W` (..., nU) of inputs (..., D), for all steps at once."""
    return backend.matmul(inputs, weights["kernel"])


def in_order_of_visits(
    plan: Plan, sequences: Any, input_mask: Any, per_step: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """What the loop goes over, from the first row to the last.

    tf2onnx takes whatever a loop writes for its outputs in the order of its
    steps, hence no loop that goes backwards.

    Returns:
        The inputs that are multiplied (T, B, D), and of `per_step` the mask
        (T, B, 1), the statistics, the choices (T, B, U) and the starts
        (T, B, 1), or None each.
    """
    inputs = keras.ops.transpose(sequences, (1, 0, 2))
    if input_mask is not None:
        inputs = inputs * input_mask
    mask, moving, choices, starts = per_step
    if mask is not None:
        mask = keras.ops.swapaxes(mask, 0, 1)[..., None]
    if choices is not None:
        choices = tuple(
            None if choice is None else keras.ops.swapaxes(choice, 0, 1)
            for choice in choices
        )
    if starts is not None:
        starts = keras.ops.swapaxes(starts, 0, 1)[..., None]
    if plan.go_backwards:
        inputs, mask, choices, starts = flipped((inputs, mask, choices, starts))
    return inputs, (mask, moving, choices, starts)


def flipped(rows: Any) -> Any:
    """Rows (T, ...) of a structure, the last one first; None stays."""
    return keras.tree.map_structure(
        lambda x: None if x is None else keras.ops.flip(x, axis=0), rows
    )


def _unrolled(step: Callable[[Any, Any], Any], init: Any, xs: Any) -> Any:
    """`backend.scan`, unrolled."""
    length = next(x.shape[0] for x in keras.tree.flatten(xs) if x is not None)
    if length is None or backend.stands_for_unknown(length):
        raise ValueError(
            "`unroll=True` needs a known number of time steps. Received: "
            "inputs of unknown length. Give keras.Input a shape with it, or "
            "leave unroll=False."
        )
    carry, ys = init, []
    for t in range(length):
        row = keras.tree.map_structure(
            lambda x, t=t: None if x is None else x[t], xs
        )
        carry, y = step(carry, row)
        ys.append(y)
    return carry, keras.tree.map_structure(
        lambda *ys: None if ys[0] is None else keras.ops.stack(ys),
        *ys,
    )
