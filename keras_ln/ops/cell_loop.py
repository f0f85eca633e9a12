"""A cell's step over time, by the backend's scan and plain autodiff.

Letters: B batch, T time, U units.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend


def cell_loop(
    step: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]],
    inputs: Any,
    initial_states: Any,
    **options: Any,
) -> tuple[Any, Any, tuple[Any, ...]]:
    """Runs `step` over axis 1 of `inputs`.

    At a step that the mask leaves out, the states stay and the output is the
    h that is carried: before the first valid step that is the initial h, on
    every backend.

    Args:
        step: `step(inputs_t, states) -> states`, the states a tuple with h
            (B, U) in front. A state keeps its dtype.
        inputs: tensor (B, T, ...), or a nested structure of such tensors.
        initial_states: the states before the first step.
        **options: those of `recording_loop`.

    Returns:
        `(last_output, outputs, final_states)`. The outputs are those of each
        step (B, T, U), or without `return_all_outputs` those of the last one
        (B, 1, U), in the dtype of the inputs.
    """

    def silent(inputs_t: Any, states: tuple[Any, ...], valid: Any) -> Any:
        return step(inputs_t, states), None

    return recording_loop(silent, inputs, initial_states, **options)[:3]


def recording_loop(
    step: Callable[[Any, tuple[Any, ...], Any], tuple[tuple[Any, ...], Any]],
    inputs: Any,
    initial_states: Any,
    *,
    mask: Any = None,
    go_backwards: bool = False,
    unroll: bool = False,
    zero_output_for_mask: bool = False,
    return_all_outputs: bool = True,
) -> tuple[Any, Any, tuple[Any, ...], Any]:
    """`cell_loop` of a step that keeps a record of what it did.

    Args:
        step: `step(inputs_t, states, valid) -> (states, record)`; valid
            (B, 1) is the step's mask or None, a record is a nested structure
            of tensors, or None.
        inputs: as in `cell_loop`.
        initial_states: as in `cell_loop`.
        mask: bool tensor (B, T), False where a row's step is left out; or
            None.
        go_backwards: visit the last step first; the outputs and records come
            in the order in which the steps were visited.
        unroll: write the steps out one by one; T must be known.
        zero_output_for_mask: steps that are left out put out zeros.
        return_all_outputs: whether to keep the outputs of every step.

    Returns:
        `(last_output, outputs, final_states, records)`, the records (T, ...).
    """
    dtype = keras.tree.flatten(inputs)[0].dtype

    def body(states: tuple[Any, ...], row: Any) -> Any:
        inputs_t, valid = row
        new_states, record = step(inputs_t, states, valid)
        if valid is not None:
            new_states = tuple(
                keras.ops.where(valid, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        h = keras.ops.cast(new_states[0], dtype) if return_all_outputs else None
        return tuple(new_states), (h, record)

    rows = (inputs, None if mask is None else mask[..., None])
    rows = keras.tree.map_structure(
        lambda x: None if x is None else _in_visiting_order(x, go_backwards),
        rows,
    )
    loop = _unrolled if unroll else backend.scan
    states, (outputs, records) = loop(body, tuple(initial_states), rows)

    last_output = keras.ops.cast(states[0], dtype)
    if return_all_outputs:
        outputs = keras.ops.swapaxes(outputs, 0, 1)
    else:
        outputs = last_output[:, None]
    if mask is not None and zero_output_for_mask:
        last_output, outputs = zero_where_masked(
            last_output, outputs, mask, go_backwards
        )
    return last_output, outputs, states, records


def zero_where_masked(
    last_output: Any, outputs: Any, mask: Any, go_backwards: bool
) -> tuple[Any, Any]:
    """Both outputs of a sequence with zeros at the steps left out.

    Args:
        last_output: tensor (B, U).
        outputs: tensor (B, T, U) or (B, 1, U), the last one alone.
        mask: bool tensor (B, T).
        go_backwards: whether the outputs come last step first.
    """
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


def _in_visiting_order(x: Any, go_backwards: bool) -> Any:
    """Rows of `x` (B, T, ...), time first, in the order of the steps."""
    x = keras.ops.swapaxes(x, 0, 1)
    return keras.ops.flip(x, axis=0) if go_backwards else x


def _unrolled(step: Callable[[Any, Any], Any], init: Any, xs: Any) -> Any:
    """`backend.scan`, written out step by step."""
    length = next(x.shape[0] for x in keras.tree.flatten(xs) if x is not None)
    if length is None:
        raise ValueError(
            "`unroll=True` needs a known number of time steps. Received: "
            "inputs of unknown length. Give keras.Input a shape with it, or "
            "leave unroll=False."
        )
    carry, rows = init, []
    for t in range(length):
        row = keras.tree.map_structure(
            lambda x, t=t: None if x is None else x[t], xs
        )
        carry, y = step(carry, row)
        rows.append(y)
    return carry, keras.tree.map_structure(
        lambda *ys: None if ys[0] is None else keras.ops.stack(ys), *rows
    )
