"""WeightNormalization.initialize_from_data, for every kind of layer."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy

from keras_ln import WeightNormalization, WeightNormDense

layers = keras.layers


def example(shape, seed=1):
    x = np.random.default_rng(seed).normal(size=shape)
    return (3.0 + 2.0 * x).astype("float32")


# A layer, the shape of its inputs, and the axes of the outputs that are units'.
KINDS = {
    "Dense": (layers.Dense(4, activation="relu"), (64, 5), (1,)),
    "Dense of three axes": (layers.Dense(4), (8, 9, 5), (2,)),
    "Conv1D": (layers.Conv1D(4, 3, strides=2), (8, 12, 3), (2,)),
    "Conv1D, the channels first": (
        layers.Conv1D(4, 3, data_format="channels_first"),
        (8, 3, 12),
        (1,),
    ),
    "Conv2D": (layers.Conv2D(4, 2), (8, 5, 5, 3), (3,)),
    "Conv1DTranspose": (layers.Conv1DTranspose(4, 3), (16, 6, 3), (2,)),
    "DepthwiseConv2D": (
        layers.DepthwiseConv2D(2, depth_multiplier=2),
        (8, 5, 5, 3),
        (3,),
    ),
    "EinsumDense": (
        layers.EinsumDense("abc,ced->abde", (None, 2, 3), bias_axes="de"),
        (8, 9, 4),
        (2, 3),
    ),
    "EinsumDense of any rank": (
        layers.EinsumDense("...c,cd->...d", 3, bias_axes="d"),
        (8, 9, 4),
        (2,),
    ),
    "EinsumDense, the units before": (
        layers.EinsumDense("abc,cd->adb", (3, None), bias_axes="d"),
        (8, 9, 4),
        (1,),
    ),
    "WeightNormDense": (WeightNormDense(4, activation="relu"), (64, 5), (1,)),
    "WeightNormDense of three axes": (WeightNormDense(4), (8, 9, 5), (2,)),
    "WeightNormDense of one feature": (WeightNormDense(4), (64, 1), (1,)),
}


@pytest.mark.parametrize("name", KINDS)
def test_mean_0_and_deviation_of_the_pre_activations(name):
    layer, shape, units = KINDS[name]
    linear = type(layer).from_config(
        {**layer.get_config(), "activation": "linear"}
    )
    if not isinstance(layer, WeightNormDense):
        layer = WeightNormalization(layer)
    x = example(shape)
    layer.build(shape)
    kernel = next(w for w in layer.weights if w.name == "kernel")
    # Columns of very different lengths: statistics of x . v are not enough.
    kernel.assign(to_numpy(kernel) * np.logspace(-1, 1, kernel.shape[-1]))
    v = to_numpy(kernel)
    layer.initialize_from_data(x, 0.5)
    np.testing.assert_array_equal(to_numpy(kernel), v)

    linear.build(shape)
    own = layer if isinstance(layer, WeightNormDense) else layer.remove()
    linear.set_weights(own.get_weights())
    y = to_numpy(linear(x)).astype("float64")
    others = tuple({*range(y.ndim)} - {*units})
    close(y.mean(others), 0.0, atol=1e-5)
    close(y.std(others), 0.5, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
@pytest.mark.parametrize("make", [layers.Dense, WeightNormDense])
def test_half_precision_is_initialised_in_float32(make, dtype):
    x = 1e3 * example((256, 5))  # whose squares overflow float16
    layer = make(3, dtype=dtype)
    if make is layers.Dense:
        layer = WeightNormalization(layer)
    layer.initialize_from_data(x)
    g, v, bias = (
        to_numpy(keras.ops.cast(weight, "float64"))
        for name in ("g", "kernel", "bias")
        for weight in layer.weights
        if weight.name == name
    )
    t = x.astype("float64") @ (v / np.linalg.norm(v, axis=0))
    tolerance = 1e-2 if dtype == "bfloat16" else 2e-3
    close(g, 1.0 / t.std(0), rtol=tolerance)
    close(bias, -t.mean(0) / t.std(0), rtol=tolerance)
