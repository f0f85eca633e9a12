"""Rules for the dtypes in which ops compute."""

from typing import Any

import keras

from keras_ln import backend

# For layers, which may not import the backend.
cast = backend.cast
# Keras takes as long for a name as for a small product. A dictionary, because
# torch.compile warns of functools.cache.
_names: dict[Any, str] = {}


def name_of(dtype: Any) -> str:
    """The name of a backend's dtype, as Keras calls it."""
    if dtype not in _names:
        _names[dtype] = keras.backend.standardize_dtype(dtype)
    return _names[dtype]


def at_least_float32(dtype: Any) -> str:
    """The dtype for statistics and sums of numbers of this dtype."""
    # keras.backend.result_type turns float64 into float32 on JAX and torch.
    return "float64" if name_of(dtype) == "float64" else "float32"


def wide_dtype(*tensors: Any) -> str:
    """The computation's dtype for these (None allowed), at least float32."""
    dtypes = {x.dtype for x in tensors if x is not None}
    names = [keras.backend.standardize_dtype(dtype) for dtype in dtypes]
    return "float64" if "float64" in names else "float32"


def widen(x: Any) -> Any:
    """The tensor in at least float32."""
    return backend.cast(x, at_least_float32(x.dtype))
