"""ops.layer_normalization of numbers that float32 and float16 round."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from reference import norms
from tolerances import FLOAT32_VALUES

from keras_ln.ops import layer_normalization


def test_float16_sums_do_not_overflow():
    x = np.full((2, 4096), 60.0, "float16")
    x[:, ::2] = 20.0  # the sum, 163840, and the squares exceed 65504
    y = to_numpy(layer_normalization(keras.ops.convert_to_tensor(x)))
    close(y, np.where(x == 60, 1.0, -1.0), rtol=1e-3)


@pytest.mark.parametrize("size", [8, 1000, 4096])
def test_large_mean_costs_no_more_than_rounding_the_input(size):
    rng = np.random.default_rng(1)
    exact = 1e4 + rng.normal(size=(16, size))
    x = exact.astype("float32")
    y = to_numpy(layer_normalization(keras.ops.convert_to_tensor(x)))
    expected = norms.layer_norm(exact)
    rounded = norms.layer_norm(x.astype("float64"))
    # float32 numbers near 1e4 are 2^-10 apart, so rounding moves x by 2^-11.
    assert abs(rounded - expected).max() > 4e-4
    assert abs(y - expected).max() < 2.0**-11 * 1.05 / exact.std(-1).min()
    close(y, rounded, **FLOAT32_VALUES)


@pytest.mark.parametrize(
    "outlier", [slice(0, 1), slice(0, 16), slice(-1, None)]
)
def test_outliers_do_not_blur_the_others(outlier):
    x = np.random.default_rng(1).normal(size=(16, 1024))
    x[:, outlier] += 1e4
    x = x.astype("float32")
    y = to_numpy(layer_normalization(keras.ops.convert_to_tensor(x)))
    expected = norms.layer_norm(x.astype("float64"))
    # One of 16 outliers moves the origin to 625, and a sum of 1024 such
    # numbers loses about sqrt(1024) roundings. The deviation is 312 or more.
    assert abs(y - expected)[:, 16:-1].max() < 32 * 2.0**-24 * 625 / 312


def test_constant_rows():
    x = keras.ops.full((2, 5), 3.0)
    assert not to_numpy(layer_normalization(x)).any()
    assert np.isnan(to_numpy(layer_normalization(x, epsilon=0))).all()
