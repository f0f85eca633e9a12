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


def refused(layer, shape=(4, 6, 5), x=None, **options):
    layer = WeightNormalization(layer)
    layer.build(shape)
    before = [np.array(w) for w in layer.get_weights()]
    with pytest.raises(ValueError) as raised:
        layer.initialize_from_data(
            example(shape) if x is None else x, **options
        )
    for new, old in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(new, old)
    return str(raised.value)


@pytest.mark.parametrize(
    "layer",
    [
        layers.LSTM(3),
        layers.Bidirectional(layers.LSTM(3)),
        layers.TimeDistributed(layers.Dense(3)),
        layers.SeparableConv1D(3, 2),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_without_one_kernel(layer):
    message = refused(layer)
    assert "needs a layer with its own single kernel" in message
    assert f"Received: {type(layer).__name__}." in message


def test_layers_without_a_bias_for_each_unit():
    assert "with 0 biases for the gains (3,)" in refused(
        layers.Dense(3, use_bias=False)
    )
    assert "with 3 biases for the gains (2, 3)" in refused(
        layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="e")
    )


def test_einsum_dense_with_a_bias_of_another_axis():
    """Of the same size; axes of size 1 need none."""
    message = refused(
        layers.EinsumDense("abc,cd->abd", (5, 5), bias_axes="b"), (8, 5, 4)
    )
    assert "with bias_axes='b' for the units ['d']" in message
    layer = layers.EinsumDense("abc,cde->abde", (3, 1, 2), bias_axes="e")
    x = example((8, 3, 4))
    layer = WeightNormalization(layer)
    layer.initialize_from_data(x)
    close(to_numpy(layer(x)).std((0, 1)), 1.0, rtol=1e-4)


def test_data_that_half_precision_has_no_gain_for():
    """Which would be zero, and the layer dead."""
    x = example((64, 5)) * np.float32(1e9)
    message = refused(layers.Dense(3, dtype="float16"), (64, 5), x)
    assert "the units [0, 1, 2]: the gain would be zero" in message
    assert message.endswith("in float16.")


@pytest.mark.parametrize("scale", ["1", None, True, [1.0], np.nan])
@pytest.mark.parametrize("make", [layers.Dense, WeightNormDense])
def test_scales_that_are_none(make, scale):
    layer = make(3)
    if make is layers.Dense:
        layer = WeightNormalization(layer)
    with pytest.raises(ValueError, match="`scale` must be a finite number"):
        layer.initialize_from_data(example((4, 5)), scale)


def test_useless_data():
    assert "units [0, 1, 2]: the pre-activations are constant" in refused(
        layers.Dense(3), (4, 5), np.ones((4, 5), "float32")
    )
    broken = example((4, 5))
    broken[1, 2] = np.nan
    assert "not finite, over `x`" in refused(layers.Dense(3), (4, 5), broken)
    assert "kernel column is zero" in refused(
        layers.Dense(3, kernel_initializer="zeros"), (4, 5)
    )
    assert "`x` must have a floating-point" in refused(
        layers.Dense(3), (4, 5), np.ones((4, 5), "int32")
    )
    assert "`scale` must be a finite number > 0" in refused(
        layers.Dense(3), (4, 5), scale=0.0
    )


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
