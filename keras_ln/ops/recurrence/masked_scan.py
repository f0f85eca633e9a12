"""A step over time that a mask may leave out, and that may start anew.

Letters: B batch, T time, U units.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend


def masked_scan(
    step: Callable[[Any, tuple[Any, ...], Any], tuple[tuple[Any, ...], Any]],
    rows: Any,
    states: tuple[Any, ...],
    valid: Any = None,
    *,
    starts: Any = None,
    reset_states: tuple[Any, ...] | None = None,
    output: Callable[[tuple[Any, ...]], Any] = lambda states: None,
    unroll: bool = False,
) -> tuple[tuple[Any, ...], Any, Any]:
    """Runs `step` over time, differentiable by the framework's own means.

    At a step that the mask leaves out, the states stay: before the first valid
    step they are the initial ones, on every backend.

    Args:
        step: `step(row, states, valid) -> (states, record)`, the states a
            tuple with h (B, U) in front. A state keeps its dtype. valid (B, 1)
            is the step's mask or None, a record a nested structure of tensors,
            or None.
        rows: nested structure of tensors (T, ...), or None.
        states: those before the first step.
        valid: bool tensor (T, B, 1), False where a row's step is left out; or
            None.
        starts: bool tensor (T, B, 1), True where a row's states are replaced
            before the step, whatever the mask says; or None.
        reset_states: what replaces them, tensors (B, U); None for zeros.
        output: what to keep of the states after a step; or None.
        unroll: whether to unroll the loop over time; T must be known.

    Returns:
        `(final_states, outputs, records)`, the last two (T, ...).
    """
    after = reset_states or ()
    if starts is not None and reset_states is None:
        after = tuple(map(keras.ops.zeros_like, states))

    def body(states: tuple[Any, ...], row: Any) -> Any:
        row, valid, start = row
        if start is not None:
            states = tuple(
                backend.where(start, new, old)
                for new, old in zip(after, states, strict=True)
            )
        new_states, record = step(row, states, valid)
        if valid is not None:
            new_states = tuple(
                keras.ops.where(valid, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        return new_states, (output(new_states), record)

    scan = _unrolled if unroll else backend.scan
    states, (outputs, records) = scan(body, states, (rows, valid, starts))
    return states, outputs, records


def _unrolled(step: Callable[[Any, Any], Any], init: Any, xs: Any) -> Any:
    """`backend.scan`, unrolled."""
    length = next(x.shape[0] for x in keras.tree.flatten(xs) if x is not None)
    if length is None:
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
