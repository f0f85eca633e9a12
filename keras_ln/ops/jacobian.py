"""Derivatives of a function of one tensor, by the backend's autodiff."""

from collections.abc import Callable
from typing import Any

import keras

from keras_ln import backend
from keras_ln.engine import arguments


def jacobian(function: Callable[[Any], Any], x: Any) -> Any:
    """The derivative of every entry of `function(x)` in every entry of `x`.

    Args:
        function: from one floating-point tensor to another.
        x: floating-point tensor of any shape.

    Returns:
        A tensor of the shape `function(x).shape + x.shape` in the dtype of
        the function's result, with zeros for entries that do not depend on
        `x`.

    Raises:
        ValueError: if `x` is not floating point.

    >>> import keras
    >>> j = jacobian(lambda x: x * x, keras.ops.convert_to_tensor([1.0, 2.0]))
    >>> print(keras.ops.convert_to_numpy(j))
    [[2. 0.]
     [0. 4.]]
    """
    x = keras.ops.convert_to_tensor(x)
    arguments.check_floating("x", x.dtype)
    return backend.jacobian(function, x)
