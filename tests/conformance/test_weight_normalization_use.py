"""WeightNormalization as users meet it: fit, files, masks, states, threads.

Beside each model stands its twin of plain layers or of our weight-normalised
ones. Letters: T time, D input features, U units.
"""

import concurrent.futures

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from tolerances import FLOAT32, SAME_PROGRAM
from weight_norms import stretch, weight

import keras_ln
from keras_ln import WeightNormalization

layers = keras.layers
T, D, U = 4, 3, 2


def train(model, x, y, **options):
    model.compile(keras.optimizers.Adam(0.01), "mse", **options)
    history = model.fit(x, y, 4, epochs=2, verbose=0, shuffle=False)
    return history.history["loss"]


@pytest.mark.every_backend
def test_fit_is_that_of_weight_norm_dense_and_of_wnlstm():
    """The same losses and the same weights, by name."""
    x, y = example(8, T, D), example(8, 1, seed=2)
    found = []
    for make_rnn, make_dense in (
        (
            lambda: WeightNormalization(layers.LSTM(U)),
            lambda: WeightNormalization(layers.Dense(1)),
        ),
        (lambda: keras_ln.WNLSTM(U), lambda: keras_ln.WeightNormDense(1)),
    ):
        keras.utils.set_random_seed(3)
        parts = make_rnn(), make_dense()
        model = keras.Sequential([keras.Input((T, D)), *parts])
        losses = train(model, x, y)
        weights = [{w.name: to_numpy(w) for w in p.weights} for p in parts]
        found.append((losses, weights))
    (ours, our_weights), (theirs, their_weights) = found
    assert ours[1] < ours[0]
    close(ours, theirs, **FLOAT32)
    for one, other in zip(our_weights, their_weights, strict=True):
        assert set(one) == set(other)
        close(one, other, **FLOAT32)


class Around(keras.Model):
    """Wraps, while fit builds it, what was trained before, or makes its own."""

    def __init__(self, dense):
        super().__init__()
        self.inside = dense
        self.normalized = None

    def build(self, shape):
        self.normalized = (
            WeightNormalization(self.inside)
            if self.inside
            else keras_ln.WeightNormDense(U)
        )
        self.normalized.build(shape)

    def call(self, x):
        return self.normalized(x)


@pytest.mark.every_backend
def test_g_starts_right_when_fit_builds_it_around_a_trained_layer():
    x = example(6, D)
    dense = layers.Dense(U)
    dense.build((None, D))
    dense.set_weights([3.0 * example(D, U), example(U)])
    expected = to_numpy(dense(x))
    model = Around(dense)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(x, np.zeros((6, U)), verbose=0)
    close(model(x), expected, **SAME_PROGRAM)
    own = Around(None)
    own.compile(keras.optimizers.SGD(0.0), "mse")
    own.fit(x, np.zeros((6, U)), verbose=0)
    for one in (model, own):
        g, kernel = (weight(one.normalized, name) for name in ("g", "kernel"))
        close(g, np.linalg.norm(to_numpy(kernel), axis=0), rtol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class Counting(layers.Dense):
    """A dense layer with dropout, that counts its calls in training."""

    def build(self, input_shape):
        self.dropout = layers.Dropout(0.5, seed=1)
        self.calls = self.add_weight(
            name="calls", shape=(), initializer="zeros", trainable=False
        )
        super().build(input_shape)

    def call(self, inputs, training=False):
        y = super().call(self.dropout(inputs, training=training))
        self.add_loss(keras.ops.mean(y * y))
        if training:
            self.calls.assign_add(1.0)
        return y


@pytest.mark.every_backend
def test_losses_random_numbers_and_statistics_of_the_layer_pass_through():
    x, y = example(8, D), example(8, U, seed=2)
    found = []
    for wrap in (WeightNormalization, lambda layer: layer):
        inside = Counting(U, activity_regularizer="l2", kernel_regularizer="l2")
        inside.build((None, D))
        inside.set_weights([example(D, U), example(U), np.zeros(())])
        layer = wrap(inside)
        first = to_numpy(layer(x, training=True))
        assert abs(to_numpy(layer(x, training=True)) - first).max() > 1e-3
        eager = [float(to_numpy(loss)) for loss in layer.losses]
        model = keras.Sequential([keras.Input((D,)), layer])
        model.compile(keras.optimizers.SGD(0.0), "mse")
        losses = model.fit(x, y, 4, 2, verbose=0, shuffle=False)
        found.append((first, sorted(eager), losses.history["loss"]))
        assert float(to_numpy(inside.calls)) == 6.0
    for ours, theirs in zip(*found, strict=True):
        close(ours, theirs, **FLOAT32)


class Noisy(layers.Layer):
    """A cell that draws in its step: two masks from one generator."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.state_size = self.output_size = units
        self.seed = keras.random.SeedGenerator(1)

    def build(self, input_shape):
        shape = (input_shape[-1], self.state_size)
        self.kernel = self.add_weight(name="kernel", shape=shape)

    def call(self, inputs, states):
        ones = keras.ops.ones((2, self.state_size))
        one, other = (
            keras.random.dropout(ones, 0.5, seed=self.seed) for _ in range(2)
        )
        new = keras.ops.matmul(inputs, self.kernel) * (one - other)
        return new, [new]


@pytest.mark.every_backend
def test_random_numbers_in_a_loop():
    """What Keras does by itself: on JAX they stay in the loop."""
    x, found = example(2, T, D), []
    cell = Noisy(50)
    layer = layers.RNN(cell, return_sequences=True)
    layer.build(x.shape)
    start = to_numpy(cell.seed.state.value)
    for one in (layer, WeightNormalization(layer)):
        cell.seed.state.assign(start)
        outputs = [to_numpy(one(x)) for _ in range(2)]
        # Two masks of each step are not the same.
        assert 0.3 < (outputs[0] == 0).mean() < 0.7
        found.append([*outputs, to_numpy(cell.seed.state.value)])
    for ours, theirs in zip(*found, strict=True):
        close(ours, theirs, **FLOAT32)


class Failing(layers.Dense):
    """Fails after it has read its kernel."""

    def call(self, inputs):
        super().call(inputs)
        raise RuntimeError("on purpose")


def test_after_an_error_the_kernel_is_v_again():
    inside = Failing(U)
    layer = WeightNormalization(inside)
    layer.build((None, D))
    stretch(layer)
    v = to_numpy(inside.kernel)
    with pytest.raises(RuntimeError, match="on purpose"):
        layer(example(2, D))
    np.testing.assert_array_equal(to_numpy(inside.kernel), v)
    other = layers.Dense(U)
    other(example(2, D))  # made, and assigned to, outside of all scopes
    other.kernel.assign(v)
    np.testing.assert_array_equal(to_numpy(other.kernel), v)


@pytest.mark.every_backend
def test_eight_threads_see_what_one_sees():
    """A thread's kernels are its own: some call the layer inside."""
    layer = WeightNormalization(layers.Dense(U))
    layer.build((None, D))
    stretch(layer)
    x = example(6, D)
    right = to_numpy(layer(x)), to_numpy(layer.layer(x))
    assert abs(right[0] - right[1]).max() > 1e-3

    def work(number):
        one = (layer, layer.layer)[number % 2]
        return [to_numpy(one(x)) for _ in range(50)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for number, found in enumerate(pool.map(work, range(8))):
            for y in found:
                np.testing.assert_array_equal(y, right[number % 2])


@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float16"]
)
@pytest.mark.parametrize("make", [layers.Dense, keras_ln.WeightNormDense])
def test_half_precision_normalises_in_float32(make, policy):
    layer = make(U, dtype=policy)
    if make is layers.Dense:
        layer = WeightNormalization(layer)
    layer.build((None, D))
    kernel, g = weight(layer, "kernel"), weight(layer, "g")
    # These overflow float16, or their squares do.
    factor = 1e6 if "mixed" in policy else 300.0
    kernel.assign(factor * to_numpy(kernel))
    x = example(6, D)
    y = layer(x)
    compute_dtype = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(y.dtype) == compute_dtype
    assert layer.compute_dtype == compute_dtype
    kept = "float32" if "mixed" in policy else policy
    assert {w.dtype for w in layer.weights} == {kept}
    removed = layer.remove() if make is layers.Dense else layer.to_dense()
    assert removed.dtype_policy.name == policy
    found, bias = (w.astype("float64") for w in removed.get_weights())
    v = to_numpy(kernel).astype("float64")
    expected = to_numpy(g) * v / np.linalg.norm(v, axis=0)
    close(found, expected, rtol=1e-6 if "mixed" in policy else 1e-3)
    y = to_numpy(keras.ops.cast(y, "float32"))
    # Products of numbers with 8 bits.
    close(y, x @ expected + bias, rtol=3e-2, atol=5e-2)
