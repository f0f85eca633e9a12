"""The activations that recurrent ops know by name.

`keras.activations` loses float64 on JAX, and hand-written gradients need the
derivatives. So the functions below replace Keras' activations of these names;
any other callable is used as it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_ln import backend


class Activation(NamedTuple):
    """An activation `y = f(z)` and its derivative, written in terms of y."""

    function: Callable[[Any], Any]
    # None if it is not known.
    derivative: Any


ACTIVATIONS = {
    "tanh": Activation(backend.tanh, lambda y: 1.0 - y * y),
    "sigmoid": Activation(backend.sigmoid, lambda y: y * (1.0 - y)),
    "relu": Activation(
        backend.relu, lambda y: keras.ops.cast(y > 0.0, y.dtype)
    ),
    "linear": Activation(lambda z: z, lambda y: keras.ops.ones_like(y)),
}


def get_activation(identifier: Any) -> Activation:
    """The entry of `ACTIVATIONS`, or Keras' activation without a derivative.

    Args:
        identifier: any argument of `keras.activations.get`.
    """
    activation = keras.activations.get(identifier)
    for name, ours in ACTIVATIONS.items():
        if activation is getattr(keras.activations, name):
            return ours
    return Activation(activation, None)
