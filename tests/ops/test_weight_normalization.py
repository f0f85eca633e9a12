"""The weight-normalised kernel, and the initialisation from data."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from reference import gradients, norms
from tolerances import FLOAT64

from keras_ln.ops.normalization.weight_normalization import (
    column_norms,
    normalized_kernel,
    standardizing_parameters,
    weight_norm_dense,
)

D, U = 5, 4


class Kernel(keras.layers.Layer):
    """normalized_kernel of the input v, with g as a weight."""

    def __init__(self, g):
        super().__init__(dtype=g.dtype)
        self.g = self.add_weight(
            shape=g.shape, name="g", initializer=lambda shape, dtype: g
        )

    def call(self, v):
        return normalized_kernel(v, self.g)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "v": rng.normal(size=(D, U)),
        "g": rng.normal(size=U),
        "cotangent": rng.normal(size=(D, U)),
    }


def tensor(x, dtype=None):
    return keras.ops.convert_to_tensor(x, dtype)


def test_kernel_and_its_gradients(arrays):
    v, g, cotangent = arrays.values()
    result = value_and_gradients(Kernel(g), v, [cotangent])
    assert result.outputs[0].dtype == "float64"
    close(result.outputs[0], norms.weight_norm(v, g), **FLOAT64)
    right = gradients.complex_step(
        lambda a: (norms.weight_norm(a["x"], a["g"]) * cotangent).sum(),
        {"x": v, "g": g},
    )
    assert set(result.gradients) == set(right)
    for name, gradient in result.gradients.items():
        close(gradient, right[name], **FLOAT64)
        assert abs(right[name]).max() > 0.1


def test_length_of_v_does_not_matter(arrays):
    v, g, _ = arrays.values()
    short = to_numpy(normalized_kernel(tensor(v * 1e-3), tensor(g)))
    close(short, norms.weight_norm(v, g), **FLOAT64)


def test_zero_column_stays_zero_with_finite_gradients(arrays):
    v, g, cotangent = arrays.values()
    v[:, 2] = 0.0
    result = value_and_gradients(Kernel(g), v, [cotangent])
    assert not result.outputs[0][:, 2].any()
    others = [0, 1, 3]
    close(
        result.outputs[0][:, others],
        norms.weight_norm(v[:, others], g[others]),
        **FLOAT64,
    )
    for gradient in result.gradients.values():
        assert np.isfinite(gradient).all()


def test_norms_in_float32_do_not_overflow():
    v = np.full((4, 2), 200.0)
    norm = column_norms(tensor(v, "float16"))
    assert keras.backend.standardize_dtype(norm.dtype) == "float32"
    close(norm, 400.0, rtol=1e-6)
    kernel = normalized_kernel(
        tensor(v, "float16"), tensor(np.ones(2), "float16")
    )
    assert keras.backend.standardize_dtype(kernel.dtype) == "float16"
    close(kernel, 0.5, rtol=1e-3)


@pytest.mark.parametrize("shape", [(6, D), (2, 3, D)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_dense(arrays, shape, use_bias):
    v, g, _ = arrays.values()
    rng = np.random.default_rng(1)
    x, bias = rng.normal(size=shape), rng.normal(size=U)
    bias = bias if use_bias else None
    y = weight_norm_dense(
        *map(tensor, (x, v, g)), tensor(bias) if use_bias else None
    )
    expected = norms.weight_norm_dense(x, v, g, bias)
    assert to_numpy(y).dtype == "float64"
    close(y, expected, **FLOAT64)


def test_standardizing_parameters(arrays):
    v = arrays["v"]
    x = 3.0 + np.random.default_rng(2).normal(size=(7, 9, D))
    g, bias = map(to_numpy, standardizing_parameters(tensor(x), tensor(v), 0.5))
    y = norms.weight_norm_dense(x, v, g, bias)
    close(y.mean((0, 1)), 0.0, atol=1e-12)
    close(y.std((0, 1)), 0.5, rtol=1e-12)
