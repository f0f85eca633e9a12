"""The convolutional network of section 6.7 of the paper."""

from collections.abc import Sequence

import keras
from common import recurrent
from keras import layers

import keras_ln


def build_model(
    norm: str = "layer",
    units: int = 32,
    image_shape: Sequence[int] = (32, 32, 3),
    classes: int = 10,
    gain: float | None = None,
) -> keras.Model:
    """Builds the classifier; its outputs are logits.

    It has two blocks, each with two convolutions of 3 x 3 and a maximum over
    2 x 2, then a dense layer. In layer normalisation every unit has its own
    gain and bias, as in equation 3 of the paper; in batch normalisation every
    channel has them.

    Args besides the flags of `convolutional_networks.py`:
        units: the channels of the first convolutions; the second ones have
            twice as many, the dense layer eight times.
        image_shape: height, width and channels.
        classes: the number of outputs.
    """
    start = keras.initializers.Constant(1.0 if gain is None else gain)

    def hidden(x, layer: keras.Layer):
        x = layer(x)
        if norm == "batch":
            # The quick preset has too few updates for a momentum of 0.99.
            x = keras_ln.BatchNormalization(
                momentum=0.9, gamma_initializer=start
            )(x)
        elif norm != "none":
            everything = tuple(range(1, len(x.shape)))
            axis = everything if norm == "layer" else -1
            x = keras_ln.LayerNormalization(axis, gamma_initializer=start)(x)
        return layers.Activation("relu")(x)

    def convolution(channels: int) -> keras.Layer:
        return layers.Conv2D(channels, 3, padding="same", use_bias=use_bias)

    # The normalisations have their own bias, and batch normalisation cancels a
    # bias before it.
    use_bias = norm == "none"
    inputs = x = keras.Input(tuple(image_shape))
    for channels in (units, 2 * units):
        x = hidden(x, convolution(channels))
        x = hidden(x, convolution(channels))
        x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = hidden(x, layers.Dense(8 * units, use_bias=use_bias))
    x = layers.Dense(classes)(x)
    return keras.Model(inputs, recurrent.logits(x))
