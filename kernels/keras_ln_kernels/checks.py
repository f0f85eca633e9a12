"""Checks of arguments before they leave Python."""

from typing import Any

import numpy as np


def address(
    name: str,
    array: Any,
    shape: tuple[int, ...],
    dtypes: tuple[Any, ...],
    *,
    written: bool = False,
) -> int:
    """The address of an array that is all that the library takes it for.

    Args:
        name: of the argument, for the message.
        array: what was given for it.
        shape: that it must have.
        dtypes: of which it must have one, in the machine's byte order.
        written: whether the library writes to it.

    Raises:
        TypeError: where it is no array.
        ValueError: where it has another shape, dtype or layout, or is
            read-only and should not be.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"{name}: expected a NumPy array. Received: {type(array).__name__}."
        )
    flags = array.flags
    if (
        array.shape == shape
        and array.dtype in dtypes
        and flags.c_contiguous
        and flags.aligned
        and (flags.writeable or not written)
    ):
        return array.__array_interface__["data"][0]
    kinds = " or ".join(np.dtype(dtype).name for dtype in dtypes)
    wanted = "writeable, " if written else ""
    raise ValueError(
        f"{name}: expected a {wanted}C-contiguous, aligned array of {kinds} "
        f"and shape {shape}. Received: {_described(array)}."
    )


def not_empty(name: str, array: Any, rank: int, letters: str) -> None:
    """Refuses what is no array of that rank with elements.

    Raises:
        TypeError: where it is no array.
        ValueError: where it has another rank, or no elements.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"{name}: expected a NumPy array. Received: {type(array).__name__}."
        )
    if array.ndim != rank or 0 in array.shape:
        raise ValueError(
            f"{name}: expected an array {letters} that is not empty. "
            f"Received: shape {array.shape}."
        )


def number(name: str, value: Any) -> float:
    """A number; TypeError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number. Received: {value!r}.")
    return value


def count(name: str, value: Any) -> int:
    """A positive integer; ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{name}: expected a positive integer. Received: {value!r}."
        )
    # More than there can be of anything.
    return min(value, 1 << 20)


def absent(name: str, value: Any, without: str) -> None:
    """Refuses what would not be looked at."""
    if value is not None:
        raise ValueError(f"{name}: given, but {without} is False.")


def by_state(name: str, arrays: Any, states: tuple[str, ...]) -> dict[str, Any]:
    """A tuple with an array for each state, by their names.

    Raises:
        ValueError: where it is no such tuple.
    """
    if isinstance(arrays, tuple | list) and len(arrays) == len(states):
        return dict(zip(states, arrays, strict=True))
    length = f" of {len(arrays)}" if isinstance(arrays, tuple | list) else ""
    raise ValueError(
        f"{name}: expected a tuple of {', '.join(states)}. "
        f"Received: {type(arrays).__name__}{length}."
    )


def _described(array: np.ndarray) -> str:
    parts = [f"{array.dtype.str} {array.shape}", f"strides {array.strides}"]
    if not array.flags.aligned:
        parts.append("not aligned")
    if not array.flags.writeable:
        parts.append("read-only")
    return ", ".join(parts)
