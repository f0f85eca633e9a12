"""A layer of linear units whose summed inputs are normalised.

Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 5 and Table 1.
Letters: N examples, D input features, H units.
"""

from typing import Any

import keras

from keras_ln import backend
from keras_ln.ops.norms.batch_normalization import batch_statistics, normalize
from keras_ln.ops.norms.layer_normalization import layer_normalization
from keras_ln.ops.norms.weight_normalization import weight_norm_dense

NORMALIZATIONS = ("batch", "weight", "layer")


def normalized_summed_inputs(
    x: Any,  # (N, D)
    kernel: Any,  # (D, H)
    normalization: str | None,
    epsilon: float = 0.0,
) -> Any:
    """`(a - mu) / sigma` (N, H) of the summed inputs `a = x . kernel`.

    With `normalization` "batch", each unit's mu and sigma are taken over the
    examples; with "layer", each example's over the units; in both, sigma is
    `sqrt(variance + epsilon)`. With "weight", mu is 0 and sigma is the norm of
    the unit's weights; with None the result is `a`.
    """
    if normalization == "weight":
        return weight_norm_dense(x, kernel, keras.ops.ones_like(kernel[0]))
    a = backend.matmul(x, kernel)
    if normalization == "layer":
        return layer_normalization(a, epsilon=epsilon)
    if normalization == "batch":
        mean, variance = batch_statistics(a)
        return normalize(a, mean, variance, None, None, epsilon)
    return a


def linear_predictor(
    x: Any,  # (N, D)
    theta: Any,  # (H, D + 1) or (H, D + 2)
    normalization: str | None,
    epsilon: float = 0.0,
) -> Any:
    """The linear predictor eta (N, H): `g * (a - mu) / sigma + b`.

    A row of `theta` has the parameters of a unit: its weights (D), its bias
    and, with a normalisation, its gain.
    """
    features = x.shape[1]
    kernel = keras.ops.transpose(theta[:, :features])
    y = normalized_summed_inputs(x, kernel, normalization, epsilon)
    if normalization is not None:
        y = y * theta[:, features + 1]
    return y + theta[:, features]
