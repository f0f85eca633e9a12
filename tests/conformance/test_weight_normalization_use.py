"""WeightNormalization as users meet it: fit, files, masks, states, threads.

Beside each model stands its twin of plain layers or of our weight-normalised
ones. Letters: T time, D input features, U units.
"""

import concurrent.futures

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from layer_calls import stretch, weight
from tolerances import FLOAT32, SAME_PROGRAM

import keras_ln
from keras_ln import WeightNormalization

layers = keras.layers
T, D, U = 4, 3, 2


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
