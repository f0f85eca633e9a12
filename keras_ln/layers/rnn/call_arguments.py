"""What recurrent layers are called with: sequences, states, masks, resets.

Letters: B batch, T time, D input features, U units.
"""

from typing import Any

import keras
import numpy as np

from keras_ln.ops import arguments


def check_call(layer: Any, sequences: Any, initial_state: Any) -> None:
    """`ValueError` unless the layer can run sequences (B, T, D) from it."""
    arguments.check_dense("sequences", sequences)
    arguments.check_steps("sequences", sequences.shape)
    if layer.unroll and sequences.shape[1] is None:
        raise ValueError(
            "Argument `unroll` must be False where the number of time "
            "steps is unknown. Received: unroll=True and sequences of "
            f"shape {tuple(sequences.shape)}"
        )
    if initial_state is not None:
        _check_states(layer, "initial_state", initial_state, sequences)


def check_resets(
    layer: Any, sequences: Any, reset: Any, reset_state: Any
) -> None:
    """`ValueError` unless flags and states fit sequences (B, T, D)."""
    if reset is not None:
        arguments.check_flags("reset", reset, sequences.shape)
        if reset_state is not None:
            _check_states(layer, "reset_state", reset_state, sequences)
    elif reset_state is not None:
        raise ValueError(
            f"Argument `reset_state` of {type(layer).__name__} must be None "
            "without `reset`, which says where it is used. Received: "
            f"reset_state={reset_state!r}"
        )


def _check_states(layer: Any, name: str, states: Any, sequences: Any) -> None:
    states, sizes = keras.tree.flatten(states), layer.state_size
    expected = [(sequences.shape[0], size) for size in sizes]
    received = [tuple(np.shape(state)) for state in states]
    if len(states) != len(sizes) or not all(
        len(shape) == 2
        and (shape[0] == 1 or arguments.may_equal(shape[0], rows))
        and arguments.may_equal(shape[1], size)
        for shape, (rows, size) in zip(received, expected, strict=True)
    ):
        raise ValueError(
            f"Argument `{name}` of {type(layer).__name__} must be "
            f"{len(sizes)} tensor(s) of shape (batch, units), here "
            f"{expected}. Received: shapes {received}"
        )


def for_every_row(state: Any, sequences: Any) -> Any:
    """The state (B, U), where one row (1, U) may serve all."""
    if state.shape[0] != 1 or sequences.shape[0] == 1:
        return state
    rows = keras.ops.shape(sequences)[0]
    return keras.ops.broadcast_to(state, (rows, state.shape[1]))


def time_mask(mask: Any) -> Any:
    """The mask (B, T), or None; Keras may nest it in a list."""
    first = keras.tree.flatten(mask)[0]
    if first is None:
        return None
    mask = first if hasattr(first, "shape") else keras.ops.array(mask)
    if len(mask.shape) == 3 and mask.shape[-1] == 1:
        mask = mask[..., 0]
    return mask
