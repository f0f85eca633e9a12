"""WeightNormDense: against Dense and the oracle; data initialisation."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from keras.src.backend.common.masking import get_keras_mask
from reference import gradients, norms
from tolerances import FLOAT64, SAME_PROGRAM

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


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_value_and_gradients(shape, use_bias):
    layer = randomized(use_bias=use_bias, activation="tanh")
    x = example(*shape)
    cotangent = np.random.default_rng(2).normal(size=(*shape, U))
    result = value_and_gradients(layer, x, [cotangent])
    weights = {w.name: to_numpy(w) for w in layer.weights}
    assert list(weights) == ["kernel", "g"] + ["bias"] * use_bias

    def output(a):
        b = a.get("bias")
        return np.tanh(norms.weight_norm_dense(a["x"], a["kernel"], a["g"], b))

    sources = {"x": x, **weights}
    # keras.ops.tanh, as the activation, is float32 on JAX.
    tolerance = (
        {"rtol": 1e-5, "atol": 1e-5}
        if keras.backend.backend() == "jax"
        else FLOAT64
    )
    close(result.outputs[0], output(sources), **tolerance)
    right = gradients.complex_step(
        lambda a: (output(a) * cotangent).sum(), sources
    )
    assert set(result.gradients) == set(right)
    close(right, result.gradients, **tolerance)


def test_untrained_it_is_a_dense_layer_with_that_kernel():
    x = example(6).astype("float32")
    layer = WeightNormDense(U, bias_initializer="ones")
    y = to_numpy(layer(x))
    dense = keras.layers.Dense(U)
    dense.build(x.shape)
    dense.set_weights([layer.kernel, layer.bias])
    close(y, dense(x), **SAME_PROGRAM)
    norm = np.linalg.norm(to_numpy(layer.kernel), axis=0)
    close(layer.g, norm, rtol=1e-6)


class Subclassed(keras.Model):
    """Built while fit traces its first step."""

    def __init__(self):
        super().__init__()
        self.dense = WeightNormDense(U)

    def call(self, x):
        return self.dense(x)


@pytest.mark.every_backend
def test_g_starts_right_when_fit_builds_the_layer():
    model = Subclassed()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = example(6).astype("float32")
    model.fit(x, np.zeros((6, U)), verbose=0)
    norm = np.linalg.norm(to_numpy(model.dense.kernel), axis=0)
    close(model.dense.g, norm, rtol=1e-6)


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


def test_to_dense_without_bias_and_in_half_precision():
    layer = randomized(use_bias=False, dtype="mixed_bfloat16")
    dense = layer.to_dense()
    assert dense.bias is None
    assert dense.dtype_policy.name == "mixed_bfloat16"
    x = example(6)
    a, b = (to_numpy(keras.ops.cast(f(x), "float32")) for f in (layer, dense))
    close(a, b, rtol=1e-2, atol=1e-2)


def test_weights_before_build():
    layer = WeightNormDense(U)
    with pytest.raises(ValueError, match="`normalized_kernel` needs weights"):
        _ = layer.normalized_kernel
    with pytest.raises(ValueError, match="`to_dense` needs weights"):
        layer.to_dense()


@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float16"]
)
def test_half_precision_normalises_in_float32(policy):
    layer = randomized(dtype=policy)
    # The squares of these would overflow float16.
    layer.kernel.assign(300.0 * to_numpy(layer.kernel))
    x = example(6)
    y = layer(x)
    compute_dtype = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(y.dtype) == compute_dtype
    kept = "float32" if "mixed" in policy else policy
    assert {w.dtype for w in layer.weights} == {kept}
    kernel, g, bias = (w.astype("float64") for w in layer.get_weights())
    expected = norms.weight_norm_dense(x, kernel, g, bias)
    y = to_numpy(keras.ops.cast(y, "float32"))
    # Five products of numbers with 8 bits.
    close(y, expected, rtol=3e-2, atol=5e-2)


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("shape", [(64, D), (8, 9, D), (64, 1)])
def test_initialize_from_data(shape, scale):
    layer = randomized(features=shape[-1], activation="relu")
    kernel = to_numpy(layer.kernel).copy()
    # Columns of very different lengths: statistics of x . v are not enough.
    kernel *= np.array([0.01, 1.0, 10.0, 100.0])
    layer.kernel.assign(kernel)
    x = 3.0 + 2.0 * np.random.default_rng(1).normal(size=shape)
    layer.initialize_from_data(x, scale)
    np.testing.assert_array_equal(to_numpy(layer.kernel), kernel)
    y = norms.weight_norm_dense(
        x, kernel, to_numpy(layer.g), to_numpy(layer.bias)
    ).reshape(-1, U)
    close(y.mean(0), 0.0, atol=1e-10)
    close(y.std(0), scale, rtol=1e-10)
    assert layer.activation is keras.activations.relu
    close(to_numpy(layer(x)).reshape(-1, U), np.maximum(y, 0), atol=1e-9)


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


def test_wrong_data():
    with pytest.raises(ValueError, match=r"`x` must be of shape \(\.\.\., 5"):
        randomized().initialize_from_data(np.ones((6, D + 1)))
    with pytest.raises(ValueError, match="`x` must have a floating-point"):
        randomized().initialize_from_data(np.ones((6, D), "int32"))
    with pytest.raises(ValueError, match="needs use_bias=True"):
        randomized(use_bias=False).initialize_from_data(example(6))


def test_wrong_inputs():
    with pytest.raises(ValueError, match="Axis -1 of `inputs` must have a kn"):
        WeightNormDense(U)(keras.Input((None,)))
    with pytest.raises(ValueError, match="expected min_ndim=2, found ndim=1"):
        WeightNormDense(U)(np.ones((D,), "float32"))
    layer = randomized(dtype="float32")
    with pytest.raises(ValueError, match="expected axis -1 .*value 5, but"):
        layer(np.ones((2, D + 1), "float32"))
    with pytest.raises(ValueError, match="must have a floating-point dtype"):
        layer(np.ones((2, D), "complex64"))


def test_masks_pass_through_and_shapes():
    masked = keras.layers.Masking()(keras.Input((None, D)))
    outputs = WeightNormDense(U)(masked)
    assert outputs.shape == (None, None, U)
    assert get_keras_mask(outputs) is not None
