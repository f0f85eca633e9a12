"""Arguments of recurrent layers and functions: checked, and made into arrays.

Letters: B batch, T time, D input features, U units, n gates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln import backend
from keras_ln.engine import arguments, dtypes
from keras_ln.engine.arguments import leaves
from keras_ln.engine.arrays import (
    ARGUMENTS_OF_STATES,
    ARRAYS,
    MATRICES,
    words_of,
)
from keras_ln.engine.spec import Cell


def in_order(name: str, states: Any) -> list[Any]:
    """The states as a list; `ValueError` for a dict, which has no order."""
    if isinstance(states, dict):
        raise ValueError(
            f"Argument `{name}` must be a tensor or a list of tensors. "
            f"Received: a dict with {', '.join(map(str, states))}"
        )
    return leaves(states)


def tensors_of(
    sequences: Any, weights: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Both as tensors; integer weights become floating point.

    Otherwise directions and statistics would be truncated.

    Raises:
        ValueError: unless they are dense tensors of numbers.
    """
    sequences = arguments.dense_tensor("sequences", sequences)
    wide = dtypes.at_least_float32(sequences.dtype)

    def converted(name: str, weight: Any) -> Any:
        place = f"weights[{name!r}]"
        tensor = arguments.dense_tensor(place, weight)
        if "float" in dtypes.name_of(tensor.dtype):
            return tensor
        arguments.check_numbers(place, tensor.dtype)
        return keras.ops.cast(tensor, wide)

    weights = {name: converted(name, w) for name, w in weights.items()}
    kernel = weights.get("kernel", sequences)
    if len(kernel.shape) == 2 and len(sequences.shape) == 3:
        sequences = arguments.with_features(sequences, kernel.shape[0])
    return sequences, weights


def check_sequences(sequences: Any) -> None:
    """`ValueError` unless this is a floating-point tensor (B, T, D)."""
    arguments.check_floating("sequences", sequences.dtype)
    arguments.check_rank("sequences", sequences.shape, "batch, time, features")
    arguments.check_steps("sequences", sequences.shape)
    arguments.check_known("sequences", sequences.shape, -1)


def check_weights(cell: Cell, weights: dict[str, Any], features: int) -> int:
    """U; `ValueError` unless the weights, by name, fit the cell and D."""
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
    shapes |= {v.name: (v.size * units,) for v in cell.vectors}
    for name, weight in weights.items():
        if name not in shapes:
            raise ValueError(
                f"Argument `weights` may hold {', '.join(shapes)}. "
                f"Received: a weight {name!r}."
            )
        arguments.check_weight(
            name,
            weight,
            shapes[name],
            f" for {features} features and {units} units",
        )
    return units


def array(
    name: str, value: Any, x: Any, units: int, argument: str | None = None
) -> Any:
    """The array of that name as a tensor, of a dtype and a shape that fit.

    Args:
        name: one of `ARRAYS`.
        value: the argument's value.
        x: the sequences, tensor (B, T, D).
        units: U.
        argument: the name in messages, if it is not the array's name.
    """
    argument, row = argument or name, ARRAYS[name]
    if row.kind == "flag":
        return arguments.check_time_mask(value, x.shape, argument)
    value = arguments.dense_tensor(argument, value)
    if row.kind == "choice":
        check_choices(argument, value.dtype)
    elif row.kind == "factor":
        arguments.check_numbers(argument, value.dtype)
        value = keras.ops.cast(value, x.dtype)
    else:
        # An integer state would truncate every step's contribution.
        arguments.check_floating(argument, value.dtype)
    sizes = dict(zip("BTD", x.shape, strict=True), U=units)
    expected = tuple(sizes[letter] for letter in row.letters)
    arguments.check_shape(
        argument, value.shape, expected, words_of(row.letters)
    )
    return value


def sizes_are_unknown(name: str, arrays: Mapping[str, Any], units: int) -> bool:
    """Whether only a running program knows if an array fits the sequences."""
    row = ARRAYS.get(name)
    # This package makes the statistics, which are wide.
    if name == "x" or row is None or row.wide:
        return False
    known = dict(zip("BTD", arrays["x"].shape, strict=True), U=units)
    return None in (*arrays[name].shape, *(known[n] for n in row.letters))


def once_they_fit(
    arrays: dict[str, Any], names: Sequence[str], owner: str
) -> Any:
    """The sequences, once the program knows that these arrays fit them."""
    x, conditions, shown = arrays["x"], [], []
    sizes = dict(zip("BTD", keras.ops.shape(x), strict=True))
    sizes["U"] = arrays["recurrent_kernel"].shape[0]
    for name in names:
        shape = keras.ops.shape(arrays[name])
        state = name.startswith(("initial_", "reset_"))
        for size, letter in zip(shape, ARRAYS[name].letters, strict=True):
            fits = keras.ops.equal(size, sizes[letter])
            if state and letter == "B":  # One row is for all.
                fits = keras.ops.logical_or(fits, keras.ops.equal(size, 1))
            conditions.append(fits)
        for argument, prefix in ARGUMENTS_OF_STATES.items():
            name = name.replace(f"{prefix}_", f"{argument} ")
        shown += [name.replace("starts", "reset"), shape]
    message = (
        f"{owner}: all arrays must have the batch and time of the "
        "sequences. With stateful=True every batch must have as many rows as "
        "the states that are carried: drop a smaller last one. Received: "
        "shapes of sequences"
    )
    return backend.once_all(
        conditions, x, [message, keras.ops.shape(x), *shown]
    )


def check_choices(name: str, dtype: Any) -> None:
    """`ValueError` unless choices of zoneout are bool."""
    dtype = keras.backend.standardize_dtype(dtype)
    if dtype != "bool":
        raise ValueError(
            f"Argument `{name}` must be a number in [0, 1), or a bool "
            "tensor, True for units that keep their state. Received: a "
            f"tensor of dtype {dtype}"
        )


def states(
    cell: Cell, prefix: str, given: Any, x: Any, units: int, argument: str
) -> dict[str, Any]:
    """The states, tensors (B, U) that may be nested, as arrays by name."""
    nested = keras.tree.is_nested(given)
    values = in_order(argument, given)
    places = arguments.places(argument, values if nested else values[0])
    tensors = [arguments.dense_tensor(*place) for place in places]
    if len(tensors) != cell.states:
        raise ValueError(
            f"Argument `{argument}` must be {arguments.tensors(cell.states)} "
            f"of shape (batch, units), with {units} units. Received: shapes "
            f"{[tuple(tensor.shape) for tensor in tensors]}."
        )
    names = [f"{prefix}_{name}" for name in cell.state_names]
    return {
        name: array(name, tensor, x, units, place)
        for name, tensor, (place, _) in zip(names, tensors, places, strict=True)
    }


def zero_states(cell: Cell, x: Any, units: int) -> dict[str, Any]:
    """Initial states of zero: h in the dtype of `x`, c in at least float32."""
    rows = keras.ops.shape(x)[0]
    zeros = keras.ops.zeros((rows, units), dtype=x.dtype)
    wide = dtypes.at_least_float32(x.dtype)
    first, *others = [f"initial_{name}" for name in cell.state_names]
    return {first: zeros} | {n: keras.ops.cast(zeros, wide) for n in others}


def resets(
    cell: Cell, reset: Any, reset_state: Any, x: Any, units: int, owner: str
) -> dict[str, Any]:
    """The flags, in the order of time, and states of resets, by array name."""
    if reset is None:
        if reset_state is not None:
            refuse_reset_state(reset_state)
        return {}
    if cell.batch_statistics:
        refuse_resets(owner, reset=reset)
    made = {"starts": array("starts", reset, x, units, "reset")}
    if reset_state is None:
        return made
    rows = keras.ops.shape(x)[0]

    def for_every_row(state: Any) -> Any:
        state = arguments.dense_tensor("reset_state", state)
        if len(state.shape) != 2 or state.shape[0] != 1:
            return state
        return keras.ops.broadcast_to(state, (rows, state.shape[1]))

    given = keras.tree.map_structure(for_every_row, reset_state)
    return made | states(cell, "reset", given, x, units, "reset_state")


def refuse_reset_state(states: Any) -> None:
    """`ValueError` for states of resets without flags."""
    raise ValueError(
        "Argument `reset_state` must be None without `reset`, which marks the "
        "steps that use it. Received: reset_state of shapes "
        f"{[tuple(np.shape(state)) for state in leaves(states)]}"
    )


def refuse_resets(owner: str, **values: Any) -> None:
    """`ValueError` for an argument of resets, if the owner counts steps."""
    for name, value in values.items():
        if value is not None:
            raise ValueError(
                f"Argument `{name}` must be None: the statistics of {owner} "
                "belong to steps that are counted from the start of a row. "
                f"Received: {name}={value!r}"
            )
