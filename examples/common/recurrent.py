"""The layers of the experiments, with and without normalisation."""

from typing import Any

import keras

import keras_ln


def logits(x: Any) -> Any:
    """The outputs `x` in float32, also of layers in half precision."""
    return keras.layers.Activation("linear", dtype="float32")(x)


def biases(cls: Any, units: int, steps: int | None) -> dict[str, Any]:
    """A layer's arguments that let its units remember for up to `steps`.

    None keeps the class's biases. Also without normalisation `LNGRU` adds these
    biases to its others.
    """
    if steps is None:
        return {}
    cell, own = "lstm", {"unit_forget_bias": False}
    if issubclass(cls, keras.layers.GRU):
        cell, own = "gru", {}
    elif issubclass(cls, (keras_ln.LNGRU, keras_ln.LNGRUCell)):
        cell, own = "lngru", {"use_bias": True}
    bias = keras_ln.LogUniformForgetBias(units, steps, cell)
    return {"bias_initializer": bias, **own}


def layer(
    cls: Any,
    norm: str,
    units: int,
    gain: float | None = None,
    forget_steps: int | None = None,
    **kwargs: Any,
) -> keras.Layer:
    """A layer or cell of a normalised class; plain if `norm` is "none"."""
    kwargs |= biases(cls, units, forget_steps)
    if norm == "none":
        # The bias takes the place of the normalisation's beta.
        return cls(units, **kwargs | {"normalize": (), "use_bias": True})
    if gain is not None:
        kwargs["gamma_initializer"] = keras.initializers.Constant(gain)
    return cls(units, **kwargs)


def words(scale: float = 1.0) -> keras.initializers.Initializer:
    """The initializer of word vectors, `scale` times N(0, 1).

    With 1, the default of torch.nn.Embedding, their numbers have the variance
    that usual initial matrices expect of their inputs.
    """
    return keras.initializers.RandomNormal(stddev=scale)


def uniform(limit: float = 0.1) -> keras.initializers.Initializer:
    """The initializer of matrices of Vendrov et al. and Kiros et al."""
    return keras.initializers.RandomUniform(-limit, limit)


def gru(norm: str, units: int, gain: float | None, **kwargs: Any) -> Any:
    """A GRU that reads sentences, with layer normalisation or without."""
    kind = "layer" if norm == "layer" else "none"
    start = uniform()
    return layer(
        keras_ln.LNGRU, kind, units, gain, kernel_initializer=start, **kwargs
    )


def make_orthogonal(gru: keras_ln.LNGRU) -> None:
    """Makes each of the three matrices (U, U) of the states orthogonal.

    Keras' initializer would make the three matrices side by side orthogonal,
    and each of them smaller by a factor of sqrt(3).
    """
    kernel = gru.cell.recurrent_kernel
    size = (kernel.shape[0], kernel.shape[0])
    squares = [keras.initializers.Orthogonal()(size) for _ in range(3)]
    kernel.assign(keras.ops.concatenate(squares, axis=1))
