"""Checks of arrays before their addresses leave Python."""

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


def _described(array: np.ndarray) -> str:
    parts = [f"{array.dtype.str} {array.shape}", f"strides {array.strides}"]
    if not array.flags.aligned:
        parts.append("not aligned")
    if not array.flags.writeable:
        parts.append("read-only")
    return ", ".join(parts)
