"""The recurrent network that reads sentences, in two of the experiments."""

from typing import Any

import keras

import keras_ln


def uniform(limit: float = 0.1) -> keras.initializers.Initializer:
    """The initializer of matrices of Vendrov et al. and Kiros et al."""
    return keras.initializers.RandomUniform(-limit, limit)


def gru(
    norm: str, units: int, gain: float | None = None, **kwargs: Any
) -> keras_ln.LNGRU:
    """A GRU with layer normalisation if `norm` is "layer", else without.

    Args:
        norm: the kind.
        units: U.
        gain: what the gains start from; None for 1.
        **kwargs: further arguments of `LNGRU`.
    """
    if norm == "layer":
        start = keras.initializers.Constant(1.0 if gain is None else gain)
        own: dict[str, Any] = {"gamma_initializer": start}
    else:
        # The normalisation's beta is the other's bias.
        own = {"normalize": (), "use_bias": True}
    return keras_ln.LNGRU(units, kernel_initializer=uniform(), **own, **kwargs)


def make_orthogonal(gru: keras_ln.LNGRU) -> None:
    """Makes each of the three matrices (U, U) of the states orthogonal.

    Keras' initializer would make orthogonal the three side by side, each of
    which is then smaller by a factor of sqrt(3).
    """
    kernel = gru.cell.recurrent_kernel
    size = (kernel.shape[0], kernel.shape[0])
    squares = [keras.initializers.Orthogonal()(size) for _ in range(3)]
    kernel.assign(keras.ops.concatenate(squares, axis=1))
