"""The activations that recurrent ops know by name.

`keras.activations` loses float64 on JAX, and hand-written gradients need those
of activations. So the functions below replace Keras' activations of these
names; any other callable is used as it is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from keras_ln import backend


class Activation(NamedTuple):
    """An activation `y = f(z)` and its gradient, written in terms of y."""

    function: Callable[[Any], Any]
    # `vjp(dy, y)`: the gradient of z from that of y. None if it is not known.
    vjp: Any


# The gradients that are single operations of the framework.
_FUSED = {} if backend.fused is None else backend.fused.GRADIENTS
ACTIVATIONS = {
    "tanh": Activation(
        backend.tanh, _FUSED.get("tanh", lambda d, y: d * (1.0 - y * y))
    ),
    "sigmoid": Activation(
        backend.sigmoid, _FUSED.get("sigmoid", lambda d, y: d * (y * (1.0 - y)))
    ),
    "relu": Activation(
        backend.relu, lambda d, y: d * keras.ops.cast(y > 0.0, y.dtype)
    ),
    "linear": Activation(lambda z: z, lambda d, y: d),
}


def get_activation(identifier: Any) -> Activation:
    """The entry of `ACTIVATIONS`, or Keras' activation without a gradient."""
    activation = keras.activations.get(identifier)
    for name, ours in ACTIVATIONS.items():
        if activation is getattr(keras.activations, name):
            return ours
    return Activation(activation, None)
