"""Arguments of recurrent layers and functions become arrays, and are checked.

`bind` makes tensors of the arguments, by the names in `ARRAYS`; `plan_of`
checks shapes and dtypes, and decides the casts, once for equal ones.

Letters: B batch, T time, D input features, U units, n gates.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_ln import backend
from keras_ln.engine import arguments, dtypes
from keras_ln.engine.spec import (
    ARRAYS,
    MATRICES,
    WORDS,
    Cell,
    RunOptions,
    Spec,
    Tensors,
)


def bind(
    cell: Cell,
    sizes: dict[str, int],
    x: Any,
    weights: Tensors,
    options: RunOptions,
    *,
    initial_state: Any = None,
    reset: Any = None,
    reset_state: Any = None,
    go_backwards: bool = False,
    **others: Any,
) -> Tensors:
    """The arrays of a run as tensors, by name.

    Args:
        cell: the cell that runs.
        sizes: of the states, by name.
        x: the sequences, tensor (B, T, D).
        weights: tensors by name.
        options: name the caller and, for messages, its initial states.
        initial_state: tensors (B or 1, U), h first, maybe nested. Without them
            the rows start from `reset_state`, or else from zeros.
        reset: flags (B, T) of first steps in time, or None.
        reset_state: states after a reset, like the initial ones, or None.
        go_backwards: whether the last step comes first.
        **others: further arrays by name, or None.

    Raises:
        ValueError: for resets that the cell does not have, and values that
            are no tensors.
    """
    check_resets(cell, options.owner, reset, reset_state)
    arrays = {"x": x, **weights}
    owner = options.owner
    if initial_state is not None and initial_state is not reset_state:
        argument = options.states_argument
        arrays |= states_of(argument, initial_state, x, sizes, owner)
    elif reset_state is None:
        rows, wide = keras.ops.shape(x)[0], dtypes.at_least_float32(x.dtype)
        for name, size in sizes.items():
            dtype = x.dtype if name == "h" else wide
            arrays[f"initial_{name}"] = keras.ops.zeros((rows, size), dtype)
        if "projection_kernel" in arrays:
            del arrays["initial_h"]  # See `projection.reason`.
    if reset is not None:
        flags = arguments.dense_tensor("reset", reset)
        if go_backwards:
            arguments.check_flags("reset", flags, x.shape)
            # A sequence's last step in time is visited first.
            last = keras.ops.zeros_like(flags[:, :1])
            flags = keras.ops.concatenate([flags[:, 1:], last], axis=1)
        arrays["reset"] = flags
        if reset_state is not None:
            states = states_of("reset_state", reset_state, x, sizes, owner)
            first = {f"initial_{n}": states[f"reset_{n}"] for n in sizes}
            arrays = {**first, **arrays, **states}
    for name, value in others.items():
        if value is not None:
            arrays[name] = arguments.dense_tensor(name, value)
    return arrays


def states_of(
    argument: str,
    given: Any,
    x: Any,
    sizes: dict[str, int],
    owner: str,
    symbolic: bool = False,
) -> Tensors:
    """The states of an argument as tensors, by the names of arrays.

    With `symbolic` they stay as they are.
    """
    if isinstance(given, dict):
        raise ValueError(
            f"Argument `{argument}` must be a tensor or a list of tensors. "
            f"Received: a dict with {', '.join(map(str, given))}"
        )
    states = arguments.leaves(given)
    if len(states) != len(sizes):
        _refuse_states(argument, states, x, sizes, owner)
    if not symbolic:
        places = arguments.places(
            argument, states if isinstance(given, list | tuple) else given
        )
        states = [arguments.dense_tensor(*place) for place in places]
    prefix = "reset" if argument == "reset_state" else "initial"
    names = [f"{prefix}_{name}" for name in sizes]
    return dict(zip(names, states, strict=True))


class CallPlan(NamedTuple):
    """Knowledge of all runs with equal shapes, dtypes and devices."""

    spec: Spec  # with its dtypes
    # Names of arrays, and the dtypes that they get.
    casts: tuple[tuple[str, str], ...]
    # States with one row for all, or perhaps so, and their sizes.
    one_row: tuple[tuple[str, int], ...]
    # Arrays with sizes that are known, or those of the sequences are, only when
    # the program runs.
    unknown: tuple[str, ...]
    # Why an implementation cannot run them, of those that were asked.
    refusals: dict[Any, str | None]


# By spec, options, shapes and dtypes.
_plans: dict[Any, CallPlan] = {}
_MOST_PLANS = 10_000  # the lengths and batch sizes of a long training


def plan_of(spec: Spec, arrays: Tensors, options: RunOptions) -> CallPlan:
    """The plan of a run; `ValueError` for arrays that do not fit."""
    # torch.compile would guard every value that is read here, torch's tracers
    # have tensors and symbols for sizes, and a cell that is overridden and an
    # activation of one's own would live as long as the table.
    if (
        options.context.compiler_reason is not None
        or options.context.autodiff_reason is not None
        or options.overridden is not None
        or spec.activation.vjp is None
        or spec.recurrent_activation.vjp is None
        or not all(n is None or type(n) is int for n in arrays["x"].shape)
    ):
        return _new_plan(spec, arrays, options)
    kinds = [(n, type(a), tuple(a.shape), a.dtype) for n, a in arrays.items()]
    key = (spec, options, *kinds)
    # One look-up: another thread may clear the table. AutoGraph reads no
    # assignment inside of an expression (2.21).
    plan = _plans.get(key)
    if plan is None:
        plan = _new_plan(spec, arrays, options)
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _new_plan(spec: Spec, arrays: Tensors, options: RunOptions) -> CallPlan:
    rows = arrays["x"].shape[0]
    units, _ = _units(arrays)
    check(spec, options, arrays, units)
    names = {name: dtypes.name_of(a.dtype) for name, a in arrays.items()}
    # What the arrays are to be, first by their caller.
    wanted = {n: to for n, to in options.dtypes if n in names}
    for name in names.keys() & ARRAYS.keys():
        if ARRAYS[name].values == "factor":
            wanted[name] = names["x"]
        elif ARRAYS[name].values == "flag":
            wanted[name] = "bool"
    floating = {**names, **wanted}.values()
    wide = "float64" if "float64" in floating else "float32"
    # Where there are choices, these say what stays.
    h, c = spec.shares
    spec = spec._replace(
        dtype=names["x"],
        accumulator_dtype=wide,
        zoneout_share=0.0 if "zoneout" in names else h,
        cell_zoneout_share=0.0 if "cell_zoneout" in names else c,
    )
    for name in names:
        if name in (*MATRICES, "projection_kernel"):
            wanted[name] = spec.dtype
        elif name not in ARRAYS or ARRAYS[name].accumulated:
            wanted[name] = wide
    for name in spec.cell.states:
        initial, reset = f"initial_{name}", f"reset_{name}"
        if reset in names:
            wanted[reset] = wanted.get(initial, names[initial])
    sizes = _sizes(arrays["x"].shape, *_units(arrays))
    return CallPlan(
        spec,
        # Variables of TensorFlow are read once, and not at every step.
        tuple(
            (n, wanted.get(n, dtype))
            for n, dtype in names.items()
            if wanted.get(n, dtype) != dtype or hasattr(arrays[n], "assign")
        ),
        tuple(
            (name, sizes[ARRAYS[name].letters[1]])
            for name in filter(_is_state, names)
            if arrays[name].shape[0] is None
            or (arrays[name].shape[0], rows) == (1, rows) != (1, 1)
        ),
        tuple(n for n in names if _sizes_are_unknown(n, arrays, sizes)),
        {},
    )


def check(
    spec: Spec, options: RunOptions, arrays: Mapping[str, Any], units: int
) -> None:
    """`ValueError` unless the arrays fit each other, symbolic or not."""
    x = arrays["x"]
    if x.shape[1] == 0:
        arguments.check_steps("sequences", x.shape)
    if options.unroll and x.shape[1] is None:
        raise ValueError(
            "Argument `unroll` must be False if the number of time steps is "
            "unknown. Received: unroll=True and sequences of shape "
            f"{tuple(x.shape)}"
        )
    # The states of resets may be the initial ones too.
    first = arrays.get("initial_h")
    if first is not None and first is not arrays.get("reset_h"):
        _check_states("initial", spec, arrays, options, units)
    if "reset_h" in arrays:
        _check_states("reset", spec, arrays, options, units)
    sizes = _sizes(x.shape, units, spec.projection or units)
    for name in arrays.keys() & ARRAYS.keys():
        array, row = arrays[name], ARRAYS[name]
        if row.values == "flag":
            arguments.check_flags(name, array, x.shape)
        elif row.values != "real":
            dtype = dtypes.name_of(array.dtype)
            if row.values == "choice" and dtype != "bool":
                raise ValueError(
                    f"Argument `{name}` must be a number in [0, 1), or a bool "
                    "tensor, True for units that keep their state. Received: "
                    f"a tensor of dtype {dtype}"
                )
            arguments.check_numbers(name, array.dtype)
            expected = tuple(sizes[letter] for letter in row.letters)
            words = ", ".join(WORDS[letter] for letter in row.letters)
            arguments.check_shape(name, array.shape, expected, words)


def _sizes(x_shape: Any, units: int, size_of_h: int) -> dict[str, Any]:
    """The sizes of the letters of `ARRAYS`, for sequences of a shape."""
    return dict(zip("BTD", x_shape, strict=True), U=units, P=size_of_h)


def _units(arrays: Tensors) -> tuple[int, int]:
    """U and P."""
    size_of_h = arrays["recurrent_kernel"].shape[0]
    if "projection_kernel" in arrays:
        return arrays["projection_kernel"].shape[0], size_of_h
    return size_of_h, size_of_h


def _is_state(name: str) -> bool:
    return name.startswith(("initial_", "reset_"))


def _sizes_are_unknown(
    name: str, arrays: Tensors, known: dict[str, Any]
) -> bool:
    """Whether only a running program knows if an array fits the sequences."""
    row = ARRAYS.get(name)
    # This package makes the statistics.
    if name == "x" or row is None or row.accumulated:
        return False
    return None in (*arrays[name].shape, *(known[n] for n in row.letters))


def once_they_fit(arrays: Tensors, names: tuple[str, ...], owner: str) -> Any:
    """The sequences, once the program knows that these arrays fit them."""
    x, conditions, shown = arrays["x"], [], []
    sizes = _sizes(keras.ops.shape(x), *_units(arrays))
    for name in names:
        shape = keras.ops.shape(arrays[name])
        state = _is_state(name)
        for size, letter in zip(shape, ARRAYS[name].letters, strict=True):
            fits = keras.ops.equal(size, sizes[letter])
            if state and letter == "B":  # One row is for all.
                fits = keras.ops.logical_or(fits, keras.ops.equal(size, 1))
            conditions.append(fits)
        shown += [name.replace("_", "_state ") if state else name, shape]
    message = (
        f"{owner}: all arrays must have the batch and time of the "
        "sequences. With stateful=True every batch must have as many rows as "
        "the states that are carried: drop a smaller last one. Received: "
        "shapes of sequences"
    )
    return backend.once_all(
        conditions, x, [message, keras.ops.shape(x), *shown]
    )


def _check_states(
    prefix: str,
    spec: Spec,
    arrays: Mapping[str, Any],
    options: RunOptions,
    units: int,
) -> None:
    """`ValueError` unless the initial or the reset states are (B, U).

    One row (1, U) is used for the whole batch.
    """
    argument = "reset_state" if prefix == "reset" else options.states_argument
    x, sizes = arrays["x"], spec.cell.sizes(units, spec.projection)
    states = [arrays[f"{prefix}_{name}"] for name in sizes]
    batch, own = x.shape[0], dict(options.dtypes)
    for k, (name, size) in enumerate(sizes.items()):
        shape, dtype = tuple(np.shape(states[k])), states[k].dtype
        if not (
            len(shape) == 2
            # A set would not find equal sizes of torch.jit, which are tensors.
            and (batch is None or any(shape[0] == n for n in (1, batch, None)))
            and (shape[1] == size or shape[1] is None)
        ):
            _refuse_states(argument, states, x, sizes, options.owner)
        place = argument if len(sizes) == 1 else f"{argument}[{k}]"
        # A layer casts integers; otherwise they would truncate every step's
        # contribution.
        whole = f"{prefix}_{name}" in own
        if "float" not in dtypes.name_of(dtype):
            arguments.check_floating(place, dtype, or_whole=whole)


def _refuse_states(
    argument: str, states: Any, x: Any, sizes: dict[str, int], owner: str
) -> None:
    here = dict.fromkeys((x.shape[0], size) for size in sizes.values())
    raise ValueError(
        f"Argument `{argument}` of {owner} must be "
        f"{arguments.tensors(len(sizes))} of shape (batch, units), here "
        f"{' and '.join(map(str, here))}. Received: shapes "
        f"{[tuple(np.shape(state)) for state in states]}"
    )


def check_resets(cell: Cell, owner: str, reset: Any, reset_state: Any) -> None:
    """`ValueError` for resets of a cell that counts steps, or without flags."""
    if reset is None and reset_state is None:
        return
    given = {"reset": reset, "reset_state": reset_state}
    for name, value in given.items():
        if cell.batch_statistics and value is not None:
            raise arguments.wrong(
                name,
                f"None: the statistics of {owner} belong to steps that are "
                "counted from the start of a row",
                value,
            )
    if reset is None and reset_state is not None:
        shapes = [tuple(np.shape(s)) for s in arguments.leaves(reset_state)]
        raise ValueError(
            "Argument `reset_state` must be None without `reset`, which marks "
            f"the steps that use it. Received: reset_state of shapes {shapes}"
        )
