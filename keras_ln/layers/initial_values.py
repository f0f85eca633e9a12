"""The initial values of weights, in half precision too."""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln.ops.dtypes import at_least_float32


def drawn_wide(initializer: Any) -> Callable[..., Any]:
    """The initializer, made to draw in at least float32 and to cast then.

    Keras' Orthogonal takes no half precision on JAX and torch, and no
    bfloat16 on TensorFlow (3.15).

    Args:
        initializer: whatever `keras.initializers.get` takes.
    """
    initializer = keras.initializers.get(initializer)

    def draw(shape: Any, dtype: Any, **kwargs: Any) -> Any:
        wide = at_least_float32(dtype)
        return keras.ops.cast(initializer(shape, dtype=wide, **kwargs), dtype)

    return draw
