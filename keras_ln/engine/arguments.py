"""Checks of arguments that several layers and ops share.

Each function returns the value in its plain Python type, or raises an error
that names the argument, the expected values and the received one.
"""

import difflib
import numbers
import reprlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln import backend
from keras_ln._keras import layout
from keras_ln.engine import dtypes

# Integers may be larger than any float.
MOST = sys.float_info.max


def wrong(
    name: str, expected: str, value: Any, kind: type[Exception] = ValueError
) -> Exception:
    """The error for a value of an argument that must be `expected`."""
    return kind(
        f"Argument `{name}` must be {expected}. Received: {name}={value!r}"
    )


def check_integer(name: str, value: Any) -> int:
    """Returns `value` as an int; `TypeError` unless it is an integer."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise wrong(name, "an integer", value, TypeError)
    return int(value)


def check_positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int; `ValueError` unless it is an integer >= 1."""
    # bool is a subclass of int, but units=True is a slip, not a size.
    is_integer = isinstance(value, numbers.Integral) and value is not True
    if not is_integer or value < 1:
        raise wrong(name, "a positive integer", value)
    return int(value)


def check_not_negative(name: str, value: Any) -> float:
    """Returns `value` as a float; `ValueError` unless finite and >= 0."""
    # Not math.isfinite, which torch.compile does not look into.
    if not _is_real(value) or not 0 <= value <= MOST:
        raise wrong(name, "a finite number >= 0", value)
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Returns `value` as a float; `ValueError` unless finite and > 0."""
    if not _is_real(value) or not 0 < value <= MOST:
        raise wrong(name, "a finite number > 0", value)
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """Returns `value` as a float; `ValueError` unless 0 <= value <= 1."""
    if not _is_real(value) or not 0 <= value <= 1:
        raise wrong(name, "a number between 0 and 1", value)
    return float(value)


def check_rate(name: str, rate: Any) -> float:
    """Returns a rate of dropout or zoneout; `ValueError` unless in [0, 1)."""
    if not _is_real(rate) or not 0 <= rate < 1:
        what = "the probability that a unit keeps its state"
        if name.endswith("dropout"):
            what = "the fraction to drop"
        raise wrong(name, f"a number in [0, 1), {what}", rate)
    return float(rate)


def check_flag(name: str, value: Any) -> bool:
    """Returns `value` as a bool; `ValueError` unless it is one, 0 or 1."""
    is_bool = isinstance(value, bool | np.bool_)
    if not is_bool and not (
        isinstance(value, numbers.Integral) and value in (0, 1)
    ):
        raise wrong(name, "True or False", value)
    return bool(value)


def check_switch(name: str, value: Any) -> Any:
    """Returns `value`; `ValueError` unless it is "auto", True or False."""
    # Not `value in (...)`: 0 and 1 are equal to bools.
    if not isinstance(value, bool) and not (
        isinstance(value, str) and value == "auto"
    ):
        raise wrong(name, '"auto", True or False', value)
    return value


def check_floating(name: str, dtype: Any, or_whole: bool = False) -> str:
    """Returns the name of `dtype`; `ValueError` unless it is floating point.

    With `or_whole` it may be an integer type or bool too.
    """
    dtype = keras.backend.standardize_dtype(dtype)
    whole = keras.backend.is_int_dtype(dtype) or dtype == "bool"
    if not keras.backend.is_float_dtype(dtype) and not (whole and or_whole):
        raise ValueError(
            f"Argument `{name}` must have a floating-point dtype. Received: "
            f"dtype {dtype}. Cast it first, for example with "
            f'keras.ops.cast({name}, "float32").'
        )
    return dtype


def check_dense(name: str, x: Any) -> None:
    """`ValueError` for ragged, nested and sparse tensors."""
    kind, advice = type(x).__name__, backend.how_to_densify(x)
    # AutoGraph reads no assignment inside of an expression (2.21).
    other = layout(x) if isinstance(x, keras.KerasTensor) else None
    if other is not None:
        kind = f"a {other} keras.Input"
        advice = "Make it dense, and give a mask if rows end early."
    if advice is not None:
        raise ValueError(
            f"Argument `{name}` must be a dense tensor. Received: {kind}. "
            f"{advice}"
        )


def dense_tensor(name: str, x: Any) -> Any:
    """`x` as a tensor; `ValueError` if `keras.ops` cannot convert it.

    `ValueError` also for ragged, nested and sparse tensors.
    """
    check_dense(name, x)
    if hasattr(x, "dtype") and not isinstance(x, np.ndarray):
        return keras.ops.convert_to_tensor(x)
    try:
        return keras.ops.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        # The error depends on the framework, and never names the argument.
        raise ValueError(
            f"Argument `{name}` must be a tensor, an array or nested lists of "
            f"numbers. Received: {reprlib.repr(x)}"
        ) from error


def check_numbers(name: str, dtype: Any) -> None:
    """`ValueError` unless the dtype is a float, an integer or bool."""
    # A fast look-up in a table.
    if "float" not in dtypes.name_of(dtype):
        check_floating(name, dtype, or_whole=True)


def places(name: str, values: Any) -> list[tuple[str, Any]]:
    """Each of `values` with its place, such as `states[1]`.

    A single tensor has the place `name`.
    """
    if not keras.tree.is_nested(values):
        return [(name, values)]
    return [(f"{name}[{k}]", value) for k, value in enumerate(values)]


def check_axis_type(axis: Any) -> int | list[int]:
    """Returns `axis` as an int or a list of them; `TypeError` otherwise."""
    several = is_sequence(axis)
    axes = axis if several else [axis]
    if not all(
        isinstance(a, numbers.Integral) and not isinstance(a, bool)
        for a in axes
    ):
        raise wrong(
            "axis", "an integer or a list or tuple of integers", axis, TypeError
        )
    axes = [int(a) for a in axes]
    return axes if several else axes[0]


def check_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """Returns `axis` (one or several) sorted, each between 0 and rank - 1.

    Raises:
        TypeError: unless it is an integer, or a list or tuple of integers.
        ValueError: if it is empty, exceeds the rank, or names an axis twice.
    """
    checked = check_axis_type(axis)
    axes = checked if isinstance(checked, list) else [checked]
    if not all(-rank <= a < rank for a in axes):
        raise ValueError(
            f"Argument `axis` is out of range for an input of rank {rank}, "
            f"whose axes are {-rank} to {rank - 1}. Received: axis={axis!r}"
        )
    positive = sorted({a % rank for a in axes})
    if not axes or len(positive) != len(axes):
        raise ValueError(
            f"Argument `axis` must name one or more different axes of an "
            f"input of rank {rank}. Received: axis={axis!r}"
        )
    return tuple(positive)


def check_rank(name: str, shape: Sequence[int | None], letters: str) -> None:
    """`ValueError` unless there is an axis per name in `letters`.

    The names are separated by commas, as in "batch, time, features".
    """
    rank = len(letters.split(","))
    if len(shape) != rank:
        raise ValueError(
            f"Argument `{name}` must have rank {rank}, ({letters}). "
            f"Received: shape {tuple(shape)}"
        )


def check_known(name: str, shape: Sequence[int | None], axis: int) -> int:
    """Returns `shape[axis]`; `ValueError` if it is unknown or zero."""
    size = shape[axis]
    if size is None or size < 1:
        raise ValueError(
            f"Axis {axis} of `{name}` must have a known size of at least 1 "
            f"when weights are created. Received: shape {tuple(shape)}. Give "
            f"keras.Input (or build) a shape with that size."
        )
    return size


def with_features(x: Any, features: int) -> Any:
    """A tensor with that last size, which data of TensorFlow may leave open.

    A tensor with another size fails when the program runs.
    """
    x = keras.ops.convert_to_tensor(x)
    if x.shape[-1] is not None:
        return x
    return keras.ops.reshape(x, (*keras.ops.shape(x)[:-1], features))


def check_shape(
    name: str,
    shape: Sequence[int | None],  # None for unknown sizes
    expected: Sequence[int | None],  # None for any size
    letters: str,  # names of the axes, such as "batch, time"
) -> None:
    """`ValueError` unless `shape` may be `expected`."""
    if len(shape) != len(expected) or not all(map(may_equal, shape, expected)):
        raise ValueError(
            f"Argument `{name}` must have the shape ({letters}), here "
            f"{tuple(expected)}. Received: shape {tuple(shape)}"
        )


def check_steps(name: str, shape: Sequence[int | None]) -> None:
    """`ValueError` if the shape (B, T, D) is known to have no steps."""
    if shape[1] == 0:
        raise ValueError(
            f"Argument `{name}` must have at least one time step. Received: "
            f"shape {tuple(shape)}."
        )


def check_weight(
    name: str, weight: Any, expected: Sequence[int | str], reason: str = ""
) -> None:
    """`ValueError` unless the weight has the expected shape.

    `expected` holds sizes, or names of sizes for any size except 0; `reason`
    explains the sizes in the message, for example " for 4 units".
    """
    shape = tuple(weight.shape)
    if len(shape) != len(expected) or not all(
        size if isinstance(wanted, str) else size == wanted
        for size, wanted in zip(shape, expected, strict=True)
    ):
        sizes = ", ".join(map(str, expected))
        comma = "," if len(expected) == 1 else ""
        if 0 in shape:
            reason += " without axes of size 0"
        raise ValueError(
            f"Argument `weights` must hold {name} of shape ({sizes}{comma})"
            f"{reason}. Received: shape {shape}."
        )


def check_flags(name: str, flags: Any, shape: Sequence[int | None]) -> None:
    """`ValueError` unless these are flags (B, T) for inputs (B, T, D)."""
    check_dense(name, flags)
    # A number has no shape.
    received = getattr(flags, "shape", ())
    check_shape(name, received, shape[:2], "batch, time")
    dtype = keras.backend.standardize_dtype(flags.dtype)
    if "complex" in dtype or dtype == "string":
        raise ValueError(
            f"Argument `{name}` must be bool, or zeros and ones. Received: "
            f"dtype {dtype}"
        )


def may_equal(size: int | None, wanted: int | None) -> bool:
    """Whether two sizes are equal, or one of them is unknown.

    `ValueError` for two unknown sizes to which an export of JAX gave different
    names, as Keras does for every input of a model.
    """
    if size is None or wanted is None or size == wanted:
        return True
    unknown = not isinstance(size, int) and not isinstance(wanted, int)
    if keras.backend.backend() != "jax" or not unknown:
        return False
    if isinstance(size - wanted, int):  # As of t + 1 and t.
        return False
    raise ValueError(
        f"JAX cannot tell whether the unknown sizes {size} and {wanted} are "
        "equal. Give keras.Input the number of steps, make the mask inside the "
        "model, or call jax.export with one name for both."
    )


def leaves(values: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dicts.

    torch.compile can trace it, unlike keras.tree.flatten.
    """
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, list | tuple):
        return [values]
    return [leaf for value in values for leaf in leaves(value)]


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names the argument most like `name`, or ""."""
    found = difflib.get_close_matches(name, sorted(known), 1, 0.75)
    return f" Did you mean `{found[0]}`?" if found else ""


def is_sequence(value: Any) -> bool:
    """Whether it is a list of any library, such as OmegaConf's."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def tensors(number: int) -> str:
    """So many tensors, in words of a message."""
    return "1 tensor" if number == 1 else f"{number} tensors"


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
