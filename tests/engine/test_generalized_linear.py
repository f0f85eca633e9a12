"""The summed inputs of a generalised linear model, normalised three ways."""

import keras
import numpy as np
import pytest
from arrays import close

from keras_ln.ops import generalized_linear as model

N, D, H = 5, 3, 4


def right(a, kernel, normalization):
    """`(a - mu) / sigma` in NumPy; without epsilon."""
    if normalization == "weight":
        return a / np.linalg.norm(kernel, axis=0)
    if normalization is None:
        return a
    axis = {"batch": 0, "layer": 1}[normalization]
    return (a - a.mean(axis, keepdims=True)) / a.std(axis, keepdims=True)


@pytest.mark.parametrize("normalization", [None, *model.NORMALIZATIONS])
def test_without_epsilon_by_default(normalization):
    rng = np.random.default_rng(6)
    x, kernel = rng.normal(size=(N, D)), rng.normal(size=(D, H))
    gain, bias = rng.normal(size=(2, H))
    theta = np.concatenate([kernel.T, bias[:, None], gain[:, None]], axis=1)
    x, theta, w = map(keras.ops.convert_to_tensor, (x, theta, kernel))
    z = right(keras.ops.convert_to_numpy(x) @ kernel, kernel, normalization)
    found = model.normalized_summed_inputs(x, w, normalization)
    close(found, z, rtol=1e-12, atol=1e-12)
    found = model.linear_predictor(x, theta, normalization)
    y = z + bias if normalization is None else gain * z + bias
    close(found, y, rtol=1e-12, atol=1e-12)
