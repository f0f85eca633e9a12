"""LayerNormalization and WeightNormDense: what is the layers' own."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from descriptors import BY_NAME
from keras.src.backend.common.masking import get_keras_mask
from reference import norms
from tolerances import SAME_PROGRAM

from keras_ln import LayerNormalization, WeightNormDense


@pytest.mark.parametrize(
    "name",
    ["LayerNormalization", "BatchNormalization", "RecurrentBatchNorm"]
    + ["WeightNormDense"],
)
def test_masks_pass_through(name):
    inputs = keras.Input((None, 5))
    outputs = BY_NAME[name].make()(keras.layers.Masking()(inputs))
    assert outputs.shape[:2] == (None, None)
    assert get_keras_mask(outputs) is not None
    counted = keras.layers.GlobalAveragePooling1D()(outputs)
    model = keras.Model(inputs, counted)
    x = np.random.default_rng(4).normal(size=(2, 6, 5)).astype("float32")
    x[0, 4:] = 0.0
    y = to_numpy(model(x))
    alone = to_numpy(model(x[:1, :4]))
    close(y[:1], alone, **SAME_PROGRAM)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_float32_inputs_are_rounded_after_the_normalisation(policy):
    layer = LayerNormalization(dtype=policy)
    # float16 has steps of 0.5 at 1000, bfloat16 of 4.
    x = 1000.0 + np.random.default_rng(5).normal(size=(3, 64))
    y = layer(x.astype("float32"))
    compute_dtype = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(y.dtype) == compute_dtype
    assert {w.dtype for w in layer.weights} == {"float32"}
    expected = norms.layer_norm(x.astype("float32").astype("float64"))
    y = to_numpy(keras.ops.cast(y, "float32"))
    # Half a unit in the last of 8 bits.
    close(y, expected, rtol=2.0**-8, atol=1e-4)


def test_regularizers_constraints_and_initializers_are_used():
    layer = LayerNormalization(
        gamma_initializer="zeros",
        beta_initializer=keras.initializers.Constant(2.0),
        gamma_regularizer=keras.regularizers.L2(0.5),
        beta_regularizer=keras.regularizers.L2(0.5),
        gamma_constraint="unit_norm",
        beta_constraint="non_neg",
    )
    y = layer(np.ones((2, 4), "float32"))
    assert (to_numpy(y) == 2.0).all()
    losses = sorted(float(to_numpy(loss)) for loss in layer.losses)
    np.testing.assert_allclose(losses, [0.0, 0.5 * 4 * 2.0**2])
    assert layer.gamma.constraint is layer.gamma_constraint
    assert layer.beta.constraint is layer.beta_constraint


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
