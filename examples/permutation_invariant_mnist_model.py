"""The classifier of permutation invariant MNIST, section 6.6 of the paper."""

import keras
from common import recurrent
from keras import layers

import keras_ln


def build_model(
    norm: str = "layer",
    units: int = 1000,
    pixels: int = 784,
    classes: int = 10,
    unbiased: bool = False,
    gain: float | None = None,
) -> keras.Model:
    """Builds the classifier; its outputs are logits.

    Args besides the flags of `permutation_invariant_mnist.py`:
        units: the width of both hidden layers.
        pixels: the number of inputs.
        classes: the number of outputs.
        unbiased: whether batch normalisation divides by n - 1.
    """
    start = keras.initializers.Constant(1.0 if gain is None else gain)

    def normalize(x):  # (B, features)
        if norm == "layer":
            return keras_ln.LayerNormalization(gamma_initializer=start)(x)
        if norm == "batch":
            return keras_ln.BatchNormalization(
                unbiased=unbiased, gamma_initializer=start
            )(x)
        return x

    # Batch normalisation cancels a bias before it.
    use_bias = norm != "batch"
    inputs = x = keras.Input((pixels,))
    for _ in range(2):
        x = normalize(layers.Dense(units, use_bias=use_bias)(x))
        x = layers.Activation("relu")(x)
    x = layers.Dense(classes, use_bias=use_bias)(x)
    if norm == "batch":
        x = normalize(x)
    return keras.Model(inputs, recurrent.logits(x))
