"""Tensors as arrays, and whether two structures of them agree."""

import keras
import numpy as np


def to_numpy(x):
    """A tensor or variable as an array."""
    return np.asarray(keras.ops.convert_to_numpy(x))


def example(*shape, seed=1):
    """Random numbers in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def close(found, expected, what="", **tolerance):
    """Fail unless arrays, tensors or structures of them agree.

    Of dictionaries the keys of `expected` count.
    """
    if isinstance(expected, dict):
        for name, value in expected.items():
            close(found[name], value, f"{what} {name}", **tolerance)
    elif np.iterable(expected) and not hasattr(expected, "shape"):
        for one, other in zip(found, expected, strict=True):
            close(one, other, what, **tolerance)
    else:
        np.testing.assert_allclose(
            to_numpy(found), to_numpy(expected), err_msg=what, **tolerance
        )
