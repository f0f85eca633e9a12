"""WeightNormalization around every layer, against plain layers; data.

Letters: B batch, U units.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from tolerances import FLOAT64, SAME_PROGRAM

import keras_ln
from keras_ln import WeightNormalization, WeightNormDense

layers = keras.layers


@dataclasses.dataclass(frozen=True)
class Kind:
    """A layer, and the kernel and the axes of its units for each gain."""

    make: Callable
    shape: tuple
    gains: dict


def _one(*units):
    return {"g": ("kernel", units)}


RNN = {
    "kernel_g": ("kernel", (-1,)),
    "recurrent_g": ("recurrent_kernel", (-1,)),
}
SEPARABLE = {
    "depthwise_g": ("depthwise_kernel", (-2, -1)),
    "pointwise_g": ("pointwise_kernel", (-1,)),
}
KINDS = {
    "Dense": Kind(partial(layers.Dense, 4), (3, 5), _one(1)),
    "Conv1D": Kind(partial(layers.Conv1D, 4, 3, 2), (2, 8, 3), _one(-1)),
    "Conv2D": Kind(partial(layers.Conv2D, 4, 2), (2, 4, 4, 3), _one(3)),
    "Conv2D of groups": Kind(
        partial(layers.Conv2D, 4, (3, 2), groups=2), (2, 5, 4, 6), _one(3)
    ),
    "Conv3D": Kind(partial(layers.Conv3D, 2, 2), (2, 3, 3, 3, 2), _one(4)),
    "Conv1DTranspose": Kind(
        partial(layers.Conv1DTranspose, 4, 3, 2), (2, 4, 3), _one(1)
    ),
    "Conv2DTranspose": Kind(
        partial(layers.Conv2DTranspose, 4, 2), (2, 3, 3, 2), _one(2)
    ),
    "Conv3DTranspose": Kind(
        partial(layers.Conv3DTranspose, 3, 2), (2, 2, 2, 2, 2), _one(3)
    ),
    "DepthwiseConv1D": Kind(
        partial(layers.DepthwiseConv1D, 3, depth_multiplier=2),
        *((2, 5, 3), _one(1, 2)),
    ),
    "DepthwiseConv2D": Kind(
        partial(layers.DepthwiseConv2D, 2, depth_multiplier=2),
        *((2, 4, 4, 3), _one(2, 3)),
    ),
    "SeparableConv1D": Kind(
        partial(layers.SeparableConv1D, 4, 3), (2, 5, 3), SEPARABLE
    ),
    "SeparableConv2D": Kind(
        partial(layers.SeparableConv2D, 4, 2), (2, 3, 3, 2), SEPARABLE
    ),
    "EinsumDense": Kind(
        partial(
            layers.EinsumDense, "abc,cde->abde", (None, 2, 3), bias_axes="de"
        ),
        *((2, 3, 4), _one(1, 2)),
    ),
    "EinsumDense of each step": Kind(
        partial(layers.EinsumDense, "abc,bcd->abd", (2, 3), bias_axes="bd"),
        *((3, 2, 4), _one(0, 2)),
    ),
    "LSTM": Kind(partial(layers.LSTM, 2), (2, 3, 4), RNN),
    "GRU": Kind(partial(layers.GRU, 2), (2, 3, 4), RNN),
    "SimpleRNN": Kind(partial(layers.SimpleRNN, 2), (2, 3, 4), RNN),
    "RNN": Kind(
        lambda **k: layers.RNN(layers.LSTMCell(2, **k), **k), (2, 3, 4), RNN
    ),
    "LNLSTM": Kind(partial(keras_ln.LNLSTM, 2), (2, 3, 4), RNN),
    "ConvLSTM1D": Kind(partial(layers.ConvLSTM1D, 2, 2), (2, 3, 4, 2), RNN),
    "TimeDistributed": Kind(
        lambda **k: layers.TimeDistributed(layers.Dense(4, **k), **k),
        *((2, 3, 5), _one(1)),
    ),
}
# The loops of Keras on JAX with 64 bits run SimpleRNN in float32 alone, and GRU
# in float64 alone.
DTYPES = dict.fromkeys(KINDS, "float64") | {"SimpleRNN": "float32"}


def axes(v, units):
    """For np.einsum: all axes of v, and those of its units."""
    letters = "abcdef"[: v.ndim]
    return letters, "".join(letters[axis] for axis in units)


def weight_norm(v, g, units):
    """The oracle: g * v / ||v|| for kernels of any rank.

    Real and complex v: the norm of a complex step is analytic.
    """
    letters, columns = axes(v, units)
    norms = np.sqrt(np.einsum(f"{letters},{letters}->{columns}", v, v))
    return np.einsum(f"{letters},{columns}->{letters}", v, g / norms)


def weight_norm_vjp(v, g, units, cotangent):
    """Gradients of v and g, by Salimans and Kingma's eq. 3."""
    letters, columns = axes(v, units)

    def dot(a, b):
        return np.einsum(f"{letters},{letters}->{columns}", a, b)

    def times(a, b):
        return np.einsum(f"{letters},{columns}->{letters}", a, b)

    norms = np.sqrt(dot(v, v))
    of_g = dot(cotangent, v) / norms
    of_v = times(cotangent, g / norms) - times(v, g * of_g / norms**2)
    return of_v, of_g


def example(shape, seed=1, dtype="float32"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def wrapped(name, seed=0, **arguments):
    """The wrapped layer with random weights, and the arrays by name."""
    kind = KINDS[name]
    layer = WeightNormalization(kind.make(**arguments))
    layer.build(kind.shape)
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        shape = tuple(weight.shape)
        weight.assign(0.5 * rng.normal(size=shape) + weight.name.endswith("g"))
    return layer, {w.name: to_numpy(w).astype("float64") for w in layer.weights}


def plain(name, weights, **arguments):
    """The plain layer with the effective kernels, by the oracle."""
    kind = KINDS[name]
    effective = dict(weights)
    for gain, (kernel, units) in kind.gains.items():
        effective[kernel] = weight_norm(
            weights[kernel], effective.pop(gain), units
        )
    layer = kind.make(**arguments)
    layer.build(kind.shape)
    layer.set_weights([effective[w.name] for w in layer.weights])
    return layer


def tolerance(dtype):
    return FLOAT64 if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("name", KINDS)
def test_values_and_gradients(name):
    kind = KINDS[name]
    dtype = DTYPES[name]
    layer, weights = wrapped(name, dtype=dtype)
    assert {*weights} >= {*kind.gains}
    x = example(kind.shape, dtype=dtype)
    twin = plain(name, weights, dtype=dtype)
    cotangent = example(to_numpy(twin(x)).shape, seed=2, dtype=dtype)
    ours, theirs = (
        value_and_gradients(one, x, [cotangent]) for one in (layer, twin)
    )
    # Some of Keras' layers compute in float32 on JAX and torch.
    within = tolerance("float64" if name == "Conv1D" else "float32")
    close(ours.outputs[0], theirs.outputs[0], **within)
    expected = dict(theirs.gradients)
    for gain, (kernel, units) in kind.gains.items():
        expected[kernel], expected[gain] = weight_norm_vjp(
            weights[kernel], weights[gain], units, expected[kernel]
        )
    assert set(ours.gradients) == set(expected)
    for key, gradient in expected.items():
        assert abs(gradient).max() > 1e-3, key
        close(ours.gradients[key], gradient, key, **within)


def test_columns_of_a_single_number():
    """Where every axis of the kernel counts units."""
    layer = layers.EinsumDense("ab,b->ab", (4,), dtype="float64")
    layer.build((3, 4))
    v = to_numpy(layer.kernel)
    layer = WeightNormalization(layer)
    x = example((3, 4), dtype="float64")
    close(layer(x), x * v, **FLOAT64)
    gain = layer.trainable_weights[0]
    close(gain, abs(v), **FLOAT64)
    gain.assign([1.0, 2.0, 3.0, 4.0])
    close(layer(x), x * np.sign(v) * [1, 2, 3, 4], **FLOAT64)


@pytest.mark.parametrize("name", KINDS)
def test_wrapping_changes_no_function_and_removing_neither(name):
    kind = KINDS[name]
    x = example(kind.shape, dtype=DTYPES[name])
    trained = kind.make(dtype=DTYPES[name])
    trained.build(kind.shape)
    for weight in trained.weights:
        weight.assign(example(weight.shape, seed=3))
    expected = to_numpy(trained(x))
    layer = WeightNormalization(trained)
    close(layer(x), expected, **SAME_PROGRAM)
    weights = {w.name: to_numpy(w) for w in layer.weights}
    for gain, (kernel, units) in kind.gains.items():
        v = weights[kernel].astype("float64")
        columns = tuple({*range(v.ndim)} - {axis % v.ndim for axis in units})
        close(weights[gain], np.sqrt((v * v).sum(columns)), rtol=1e-6)
        # Now it is another function, which `remove` keeps.
        variable = next(w for w in layer.weights if w.name == gain)
        variable.assign(weights[gain] * example(weights[gain].shape, seed=4))
    changed = to_numpy(layer(x))
    assert abs(changed - expected).max() > 1e-3
    removed = layer.remove()
    assert type(removed) is type(trained) and removed is not trained
    assert removed.get_config() == trained.get_config()
    close(removed(x), changed, **SAME_PROGRAM)
    np.testing.assert_array_equal(to_numpy(layer(x)), changed)


def data(shape, seed=1):
    x = np.random.default_rng(seed).normal(size=shape)
    return (3.0 + 2.0 * x).astype("float32")


# A layer, the shape of its inputs, and the axes of the outputs that are units'.
FROM_DATA = {
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


@pytest.mark.parametrize("name", FROM_DATA)
def test_mean_0_and_deviation_of_the_pre_activations(name):
    layer, shape, units = FROM_DATA[name]
    linear = type(layer).from_config(
        {**layer.get_config(), "activation": "linear"}
    )
    if not isinstance(layer, WeightNormDense):
        layer = WeightNormalization(layer)
    x = data(shape)
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
    x = 1e3 * data((256, 5))  # whose squares overflow float16
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
