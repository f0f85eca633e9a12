"""Wrong calls of layers that normalise, and what is said of them."""

import keras
import numpy as np
import pytest
from refusals import check_refused, x
from statistics_models import copies, simple

import keras_ln
from keras_ln import WeightNormalization, WeightNormDense
from keras_ln import reestimate_statistics as reestimate

layers = keras.layers
EITHER = (TypeError, ValueError)


def built(layer, *shape):
    layer.build(shape)
    return layer


def batch_norm(features=4):
    return built(keras_ln.BatchNormalization(), None, features)


def of_steps(*mask, training=True, features=3, dtype="float32"):
    layer = built(keras_ln.RecurrentBatchNorm(max_steps=5), None, None, 3)
    given = x(4, 5, features, dtype=dtype)
    return layer(given, training=training, mask=x(*mask, dtype=bool))


def from_data(layer, shape=(4, 6, 5), data=None, **options):
    """Initialises the layer, in a wrapper; a refusal changes nothing."""
    if not isinstance(layer, WeightNormDense):
        layer = WeightNormalization(layer)
    layer.build(shape)
    before = [np.array(w) for w in layer.get_weights()]
    if data is None:
        data = np.random.default_rng(1).normal(3.0, 2.0, shape)
        data = data.astype("float32")
    try:
        layer.initialize_from_data(data, **options)
    finally:
        np.testing.assert_equal(layer.get_weights(), before)


def axis_of(axis):
    """Calls of layer normalisation, by tensors and by a shape."""
    layer = keras_ln.LayerNormalization(axis=axis)
    return lambda: layer(x(2, 3)), lambda: layer.compute_output_shape((2, 3))


def einsum(*arguments, **options):
    return layers.EinsumDense(*arguments, **options)


ONES = x(4, 5)
BROKEN = np.where(np.eye(4, 5) > 0, np.nan, ONES)
LARGE = 1e9 * np.random.default_rng(1).normal(size=(64, 5)).astype("float32")
SCALES = ("1", None, True, [1.0], np.nan, 0.0)
# What is said, and the calls of which it is said.
REFUSED = {
    "`axis` must be an integer": [lambda: keras_ln.BatchNormalization([1, 2])],
    "`axis` is out of range .* rank 2": [
        lambda: keras_ln.BatchNormalization(axis=2)(x(2, 3))
    ],
    "`axis` is out of range .* -2 to 1": [
        call for axis in (2, -3, [0, 2]) for call in axis_of(axis)
    ],
    "`axis` must name .*different": [
        call for axis in ([0, 0], [0, -2], []) for call in axis_of(axis)
    ],
    "Axis 1 of `inputs` must have": [
        lambda: keras_ln.BatchNormalization()(keras.Input((None,))),
        lambda: keras_ln.BatchNormalization()(keras.Input((0,))),
    ],
    "Axis -1 of `inputs` must have a kn": [
        lambda: keras_ln.RecurrentBatchNorm(max_steps=5)(keras.Input((5, None)))
    ]
    + [lambda: WeightNormDense(3)(keras.Input((None,)))],
    "expected axis -1 .*value 4, but": [
        lambda: batch_norm()(x(2, 3)),
        lambda: built(keras_ln.LayerNormalization(), None, 4)(x(2, 3)),
        lambda: built(WeightNormDense(3), None, 4)(x(2, 3)),
    ],
    "expected axis -1 .*value 3, but": [lambda: of_steps(4, 5, features=4)],
    "expected min_ndim=3, found ndim": [
        lambda axis=axis: built(keras_ln.LayerNormalization(axis), 2, 3, 4)(
            x(2, 3)
        )
        for axis in ((1, 2), 2, (-3, -1))
    ],
    "expected min_ndim=2, found ndim=1": [lambda: WeightNormDense(3)(x(5))],
    "must have a floating-point dtype": [
        lambda: of_steps(4, 5, dtype="complex64"),
        lambda: WeightNormDense(3)(x(2, 5, dtype="complex64")),
    ],
    "`mask` must have the shape": [
        lambda: batch_norm()(x(2, 4), training=True, mask=x(2, 4, dtype=bool)),
        *(
            lambda mask=mask, training=training: of_steps(
                *mask, training=training
            )
            for mask in ((4, 5, 3), (4, 6), (1, 5))
            for training in (True, False)
        ),
    ],
    "`normalized_kernel` needs weights": [
        lambda: WeightNormDense(3).normalized_kernel
    ],
    "`to_dense` needs weights": [lambda: WeightNormDense(3).to_dense()],
    "`remove` needs weights": [
        lambda: WeightNormalization(layers.Dense(3)).remove()
    ],
    "`model` must be a keras.Model. Rec": [
        lambda: reestimate(keras_ln.BatchNormalization(), ONES)
    ],
    "`model` must be built": [
        lambda: reestimate(
            keras.Sequential([keras_ln.BatchNormalization()]), ONES
        )
    ],
    "must hold at least one batch": [
        lambda data=data: reestimate(simple()[0], data)
        for data in (iter(()), x(0, 3), [])
    ],
    "`batch_size` must be a positive in": [
        lambda: reestimate(simple()[0], x(9, 3), batch_size=0)
    ],
    "`steps` must be a positive integer": [
        lambda: reestimate(simple()[0], x(9, 3), steps=0)
    ],
    "`dataset` must be arrays, .* (float|str)": [
        lambda: reestimate(simple()[0], 3.0),
        lambda: reestimate(simple()[0], "data.csv"),
    ],
    "needs a layer with its own single kernel.*Received: ": [
        lambda layer=layer: from_data(layer)
        for layer in (
            layers.LSTM(3),
            layers.Bidirectional(layers.LSTM(3)),
            layers.TimeDistributed(layers.Dense(3)),
            layers.SeparableConv1D(3, 2),
        )
    ],
    r"with 0 biases for the gains \(3,\)": [
        lambda: from_data(layers.Dense(3, use_bias=False))
    ],
    r"with 3 biases for the gains \(2, 3\)": [
        lambda: from_data(einsum("abc,cde->abde", (None, 2, 3), bias_axes="e"))
    ],
    # Of the same size.
    r"with bias_axes='b' for the units \['d'\]": [
        lambda: from_data(
            einsum("abc,cd->abd", (5, 5), bias_axes="b"), (8, 5, 4)
        )
    ],
    # Which would be zero, and the layer dead.
    r"the units \[0, 1, 2\]: the gain would be zero.*in float16.$": [
        lambda: from_data(layers.Dense(3, dtype="float16"), (64, 5), LARGE)
    ],
    "`scale` must be a finite number": [
        lambda make=make, scale=scale: from_data(make(3), (4, 5), scale=scale)
        for make in (layers.Dense, WeightNormDense)
        for scale in SCALES
    ],
    r"units \[0, 1, 2\]: the pre-activations are constant": [
        lambda: from_data(layers.Dense(3), (4, 5), ONES)
    ],
    "not finite, over `x`": [
        lambda: from_data(layers.Dense(3), (4, 5), BROKEN)
    ],
    "kernel column is zero": [
        lambda: from_data(layers.Dense(3, kernel_initializer="zeros"), (4, 5))
    ],
    "`x` must have a floating-point": [
        lambda make=make: from_data(make(3), (4, 5), x(4, 5, dtype="int32"))
        for make in (layers.Dense, WeightNormDense)
    ],
    r"`x` must be of shape \(\.\.\., 5": [
        lambda: from_data(WeightNormDense(3), (4, 5), x(4, 6))
    ],
    "needs use_bias=True": [
        lambda: from_data(WeightNormDense(3, use_bias=False), (4, 5))
    ],
    "needs a layer with a kernel. Received: .*(ReLU|Embedding|Sequential)": [
        lambda layer=layer, shape=shape: built(
            WeightNormalization(layer), *shape
        )
        for layer, shape in (
            (layers.ReLU(), ()),
            (layers.Embedding(5, 3), (None, 4)),
            (keras.Sequential([keras.Input((3,)), layers.Dense(2)]), (None, 3)),
        )
    ],
    "must be a layer of Keras 3. Received: layer=3": [
        lambda: WeightNormalization(3)
    ],
    "goes around the layer": [lambda: WeightNormalization(layers.LSTMCell(3))],
    "normalises its kernel itself": [
        lambda layer=layer: WeightNormalization(layer)
        for layer in (
            WeightNormDense(3),
            keras_ln.WNLSTM(3),
            WeightNormalization(layers.Dense(3)),
            layers.SpectralNormalization(layers.Dense(3)),
        )
    ],
    "dtype='float16' around": [
        lambda: WeightNormalization(layers.Dense(3), dtype="float16")
    ],
    "initialize_from_data": [
        lambda: WeightNormalization(layers.Dense(3), data_init=True)
    ],
}


@pytest.mark.parametrize("words", REFUSED)
def test_calls(words):
    check_refused(words, REFUSED[words], error=EITHER)


def test_a_refusal_changes_no_statistics():
    model, _ = simple()
    before = copies(model.variables)
    for data in (x(0, 3), 3.0):
        with pytest.raises(EITHER):
            reestimate(model, data)
    np.testing.assert_equal(copies(model.variables), before)
