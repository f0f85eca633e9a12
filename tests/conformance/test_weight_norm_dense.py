"""WeightNormDense: against Dense and the oracle; data initialisation."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from reference import norms
from tolerances import SAME_PROGRAM

from keras_ln import WeightNormDense

D, U = 5, 4


def randomized(seed=0, features=D, **arguments):
    layer = WeightNormDense(U, **{"dtype": "float64", **arguments})
    layer.build((None, features))
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(rng.normal(size=tuple(weight.shape)))
    return layer


def example(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=(*shape, D))


def test_normalized_kernel_and_to_dense():
    layer = randomized(activation="relu", dtype="float32", name="head")
    kernel, g, bias = layer.get_weights()
    close(
        layer.normalized_kernel,
        norms.weight_norm(kernel.astype("float64"), g),
        rtol=1e-5,
    )
    x = example(6).astype("float32")
    dense = layer.to_dense()
    assert type(dense) is keras.layers.Dense and dense.name == "head"
    close(dense(x), layer(x), **SAME_PROGRAM)
    assert (to_numpy(dense(x)) == 0).any()  # the activation came along


def test_zero_column():
    layer = randomized(dtype="float32")
    kernel, g, bias = layer.get_weights()
    kernel[:, [1, 3]] = 0.0
    layer.kernel.assign(kernel)
    y = to_numpy(layer(example(6).astype("float32")))
    np.testing.assert_array_equal(y[:, 1], np.full(6, bias[1]))
    assert np.isfinite(y).all()
    result = value_and_gradients(layer, example(6).astype("float32"))
    for gradient in result.gradients.values():
        assert np.isfinite(gradient).all()
    message = r"cannot set the units \[1, 3\]: the kernel column is zero"
    with pytest.raises(ValueError, match=message):
        layer.initialize_from_data(example(6).astype("float32"))
    np.testing.assert_array_equal(to_numpy(layer.g), g)
