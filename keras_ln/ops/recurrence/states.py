"""The states that a row comes with, and those where it starts anew.

Letters: B batch, T time, D input features, U units.
"""

from typing import Any

import keras

from keras_ln.ops import arguments
from keras_ln.ops.cells.types import Cell


def check_states(
    initial_states: Any,
    count: int,
    sequences: Any,
    units: int,
    name: str = "initial_states",
) -> tuple[Any, ...]:
    """`count` states (B, U) as tensors, zeros for None.

    Args:
        initial_states: tensors (B, U), nested or one alone, or None.
        count: how many the cell has.
        sequences: tensor (B, T, D).
        units: U.
        name: name of the argument, for messages.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    if initial_states is None:
        zeros = keras.ops.zeros(
            (keras.ops.shape(sequences)[0], units), dtype=sequences.dtype
        )
        # The first one is h; those that add up are wider.
        wide = arguments.at_least_float32(sequences.dtype)
        return (zeros, *[keras.ops.cast(zeros, wide)] * (count - 1))
    states = tuple(
        keras.ops.convert_to_tensor(state)
        for state in keras.tree.flatten(initial_states)
    )
    if len(states) != count:
        raise ValueError(
            f"Argument `{name}` must be {count} tensor(s) of shape "
            f"(batch, units), units being {units}. Received: shapes "
            f"{[tuple(state.shape) for state in states]}."
        )
    given = states if keras.tree.is_nested(initial_states) else states[0]
    for place, state in arguments.places(name, given):
        # An integer state would truncate what each step adds.
        arguments.check_floating(place, state.dtype)
        arguments.check_shape(
            place, state.shape, (sequences.shape[0], units), "batch, units"
        )
    return states


def check_resets(
    cell: Cell,
    reset: Any,
    reset_state: Any,
    sequences: Any,
    units: int,
    owner: str,
) -> tuple[Any, tuple[Any, ...] | None]:
    """Where the rows of `sequences` (B, T, D) start anew, and from what.

    Returns:
        The flags as bool (B, T), and the states (B, U), or None each.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    if reset is None:
        if reset_state is not None:
            raise ValueError(
                "Argument `reset_state` must be None without `reset`, which "
                "says where it is used. Received: reset_state of shapes "
                f"{[tuple(s.shape) for s in keras.tree.flatten(reset_state)]}"
            )
        return None, None
    if cell.gives_statistics:
        raise ValueError(
            f"Argument `reset` must be None: the statistics of {owner} belong "
            "to steps that are counted from the start of a row. Received: "
            f"reset={reset!r}"
        )
    reset = arguments.check_time_mask(reset, sequences.shape, "reset")
    if reset_state is None:
        return reset, None
    rows = keras.ops.shape(sequences)[0]
    states = keras.tree.map_structure(
        lambda state: _for_every_row(state, rows), reset_state
    )
    return reset, check_states(
        states, cell.states, sequences, units, "reset_state"
    )


def _for_every_row(state: Any, rows: Any) -> Any:
    """The state (B, U), where one row (1, U) may serve all."""
    state = keras.ops.convert_to_tensor(state)
    if len(state.shape) != 2 or state.shape[0] != 1:
        return state
    return keras.ops.broadcast_to(state, (rows, state.shape[1]))


def starts_of(reset: Any, go_backwards: bool) -> Any:
    """Flags (B, T) of first steps, at the steps before which states change.

    Backwards the last step of a sequence, in time, is visited first.
    """
    if reset is None or not go_backwards:
        return reset
    last = keras.ops.zeros_like(reset[:, :1])
    return keras.ops.concatenate([reset[:, 1:], last], axis=1)
