"""What recurrent layers and ops are called with: checked and converted.

A layer's call is checked once for equal shapes and dtypes.
Letters: B batch, T time, D input features, U units, n gates.
"""

from typing import Any

import keras
import numpy as np

from keras_ln import backend
from keras_ln.ops import arguments, dtypes
from keras_ln.ops.cells.types import Cell
from keras_ln.ops.symbolic import leaves

MATRICES = ("kernel", "recurrent_kernel")
# By what has passed `check_call`: whether the sequences hold whole numbers.
_passed: dict[Any, bool] = {}
_MOST_PASSED = 10_000  # the lengths and batch sizes of a long training


def check_call(
    owner: str,  # for messages
    sizes: list[int],  # U of each state
    unroll: bool,
    sequences: Any,  # (B, T, D), symbolic or not
    initial_state: Any = None,  # tensors (B, U), nested or one alone
    reset: Any = None,  # bool (B, T)
    reset_state: Any = None,  # as `initial_state`
) -> bool:
    """Checks what a layer is called with.

    Returns:
        Whether the sequences hold whole numbers, which a layer casts.
    """
    symbolic = isinstance(sequences, keras.KerasTensor)
    if symbolic or backend.how_to_densify(sequences) is not None:
        arguments.check_dense("sequences", sequences)
    states = resets = None
    if initial_state is not None:
        states = _in_order("initial_state", initial_state)
    if reset_state is not None:
        resets = _in_order("reset_state", reset_state)
    signature = None
    # torch.compile would guard every value that is read here.
    if not symbolic and not backend.reads_python():
        tensors = [sequences, reset, *(states or ()), *(resets or ())]
        try:
            signature = (
                (owner, *sizes, unroll),
                # Which of them are states and which are resets.
                *[None if x is None else len(x) for x in (states, resets)],
                *[x if x is None else (str(x.shape), x.dtype) for x in tensors],
            )
        except AttributeError:
            signature = None  # What is no tensor is refused below.
        # One look-up: another thread may clear the table.
        if (whole := _passed.get(signature)) is not None:
            return whole
    dtype = arguments.check_floating(
        "sequences", sequences.dtype, or_whole=True
    )
    whole = not keras.backend.is_float_dtype(dtype)
    arguments.check_steps("sequences", sequences.shape)
    if unroll and sequences.shape[1] is None:
        raise ValueError(
            "Argument `unroll` must be False where the number of time "
            "steps is unknown. Received: unroll=True and sequences of "
            f"shape {tuple(sequences.shape)}"
        )
    if states is not None:
        _check_sizes(owner, sizes, "initial_state", states, sequences)
    if reset is not None:
        arguments.check_flags("reset", reset, sequences.shape)
        if resets is not None:
            _check_sizes(owner, sizes, "reset_state", resets, sequences)
    elif resets is not None:
        _refuse_reset_state(resets)
    if signature is not None:
        if len(_passed) >= _MOST_PASSED:
            _passed.clear()
        _passed[signature] = whole
    return whole


def _in_order(name: str, states: Any) -> list[Any]:
    """The states as a list; their order tells them apart."""
    if isinstance(states, dict):
        raise ValueError(
            f"Argument `{name}` must be a tensor or a list of tensors. "
            f"Received: a dict with {', '.join(map(str, states))}"
        )
    return leaves(states)


def _check_sizes(
    owner: str, sizes: list[int], name: str, states: list[Any], sequences: Any
) -> None:
    expected = [(sequences.shape[0], size) for size in sizes]
    received = [tuple(np.shape(state)) for state in states]
    if len(states) != len(sizes) or not all(
        len(shape) == 2
        and (shape[0] == 1 or arguments.may_equal(shape[0], rows))
        and arguments.may_equal(shape[1], size)
        for shape, (rows, size) in zip(received, expected, strict=True)
    ):
        raise ValueError(
            f"Argument `{name}` of {owner} must be {len(sizes)} tensor(s) of "
            f"shape (batch, units), here {expected}. Received: shapes "
            f"{received}"
        )


def tensors_of(
    sequences: Any, weights: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Both as tensors; integer weights become floating point.

    Otherwise directions and statistics would be truncated.

    Raises:
        ValueError: for what is no dense tensor of numbers.
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

    return sequences, {name: converted(name, w) for name, w in weights.items()}


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


def check_masks(
    sequences: Any,
    units: int,
    mask: Any,
    input_mask: Any,
    recurrent_mask: Any,
) -> tuple[Any, Any, Any]:
    """The masks of `sequences` (B, T, D), or None each.

    The first one is bool (B, T); the dropout masks (B, D) and (B, U) are in the
    dtype of the sequences.
    """
    batch, _, features = sequences.shape
    if mask is not None:
        mask = arguments.check_time_mask(mask, sequences.shape)
    checked = [mask]
    for name, dropout, size, letters in (
        ("input_mask", input_mask, features, "batch, features"),
        ("recurrent_mask", recurrent_mask, units, "batch, units"),
    ):
        if dropout is not None:
            dropout = arguments.dense_tensor(name, dropout)
            arguments.check_numbers(name, dropout.dtype)
            dropout = keras.ops.cast(dropout, sequences.dtype)
            arguments.check_shape(name, dropout.shape, (batch, size), letters)
        checked.append(dropout)
    return tuple(checked)


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
        # The first state is h; the others add up, and are wider.
        wide = dtypes.at_least_float32(sequences.dtype)
        return (zeros, *[keras.ops.cast(zeros, wide)] * (count - 1))
    nested = keras.tree.is_nested(initial_states)
    states = tuple(
        arguments.dense_tensor(f"{name}[{k}]" if nested else name, state)
        for k, state in enumerate(_in_order(name, initial_states))
    )
    if len(states) != count:
        raise ValueError(
            f"Argument `{name}` must be {count} tensor(s) of shape "
            f"(batch, units), units being {units}. Received: shapes "
            f"{[tuple(state.shape) for state in states]}."
        )
    for place, state in arguments.places(name, states if nested else states[0]):
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
    """The flags as bool (B, T), and the states (B, U); or None each."""
    if reset is None:
        if reset_state is not None:
            _refuse_reset_state(leaves(reset_state))
        return None, None
    if cell.batch_statistics:
        refuse_resets(owner, reset=reset)
    reset = arguments.check_time_mask(reset, sequences.shape, "reset")
    if reset_state is None:
        return reset, None
    rows = keras.ops.shape(sequences)[0]

    def for_every_row(state: Any) -> Any:
        state = arguments.dense_tensor("reset_state", state)
        if len(state.shape) != 2 or state.shape[0] != 1:
            return state
        return keras.ops.broadcast_to(state, (rows, state.shape[1]))

    states = keras.tree.map_structure(for_every_row, reset_state)
    return reset, check_states(
        states, cell.states, sequences, units, "reset_state"
    )


def _refuse_reset_state(states: list[Any]) -> None:
    raise ValueError(
        "Argument `reset_state` must be None without `reset`, which says where "
        "it is used. Received: reset_state of shapes "
        f"{[tuple(np.shape(state)) for state in states]}"
    )


def refuse_resets(owner: str, **values: Any) -> None:
    """`ValueError` for an argument of resets, from what counts its steps."""
    for name, value in values.items():
        if value is not None:
            raise ValueError(
                f"Argument `{name}` must be None: the statistics of {owner} "
                "belong to steps that are counted from the start of a row. "
                f"Received: {name}={value!r}"
            )
