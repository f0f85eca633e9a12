"""WeightNormalization as users meet it: fit, files, masks, states, threads.

Beside each model stands its twin of plain layers or of our weight-normalised
ones. Letters: T time, D input features, U units.
"""

import concurrent.futures

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from backend_gradients import value_and_gradients
from descriptors import randomize
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
    close(*found, **FLOAT32)


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
    close(*found, **FLOAT32)


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


def tagger(wrap=WeightNormalization):
    """Words to tags: masks, around and inside Bidirectional, over time."""
    around = layers.Bidirectional(wrap(layers.LSTM(U, return_sequences=True)))
    inside = wrap(layers.Bidirectional(layers.LSTM(U, return_sequences=True)))
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(7, D, mask_zero=True),
            around,
            inside,
            layers.TimeDistributed(wrap(layers.Dense(3))),
            wrap(layers.TimeDistributed(layers.Dense(2))),
        ]
    )


def plain_tagger(model):
    """Its twin of plain layers, with the kernels of the model."""
    embedding, around, inside, over, within = model.layers
    twin = tagger(wrap=lambda layer: layer)
    parts = [
        embedding,
        around.forward_layer.remove(),
        around.backward_layer.remove(),
        inside.remove(),
        over.layer.remove(),
        within.remove(),
    ]
    twin.set_weights([w for part in parts for w in part.get_weights()])
    return twin


WORDS = np.array([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0], [1, 0, 3, 2, 1]])


def test_masks_bidirectional_time_distributed_and_files(tmp_path):
    model = tagger()
    names = [w.name for w in model.layers[2].weights]
    assert names[:4] == [
        *("forward_kernel_g", "forward_recurrent_g"),
        *("backward_kernel_g", "backward_recurrent_g"),
    ]
    assert model.layers[1].backward_layer.go_backwards
    assert not model.layers[1].forward_layer.go_backwards
    for part in model._flatten_layers():
        if isinstance(part, WeightNormalization):
            for variable in part._trainable_variables:
                variable.assign(1.5 * to_numpy(variable))
    expected = to_numpy(model(WORDS))
    twin = plain_tagger(model)
    close(twin(WORDS), expected, **FLOAT32)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(WORDS)), expected)
    model.save_weights(tmp_path / "model.weights.h5")
    other = tagger()
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(to_numpy(other(WORDS)), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(to_numpy(clone(WORDS)), expected)


def test_stacked_cells():
    """Each cell has gains of its own, and a new wrapper changes nothing."""
    cells = [layers.LSTMCell(U), layers.GRUCell(U + 1)]
    plain = layers.RNN(cells)
    x = example(2, T, D)
    expected = to_numpy(plain(x))
    layer = WeightNormalization(plain)
    close(layer(x), expected, **FLOAT32)
    gains = {
        w.name: tuple(w.shape) for w in layer.weights if w.name.endswith("_g")
    }
    assert gains == {
        "cell_0_kernel_g": (4 * U,),
        "cell_0_recurrent_g": (4 * U,),
        "cell_1_kernel_g": (3 * (U + 1),),
        "cell_1_recurrent_g": (3 * (U + 1),),
    }
    stretch(layer)
    assert abs(to_numpy(layer(x)) - expected).max() > 1e-3
    close(layer(x), layer.remove()(x), **FLOAT32)


def test_states_go_in_and_out():
    x, h, c = example(2, T, D), example(2, U, seed=2), example(2, U, seed=3)
    options = {"return_sequences": True, "return_state": True}
    layer = WeightNormalization(layers.LSTM(U, **options))
    layer.build(x.shape)
    stretch(layer)
    ours = layer(x, initial_state=[h, c])
    theirs = layer.remove()(x, initial_state=[h, c])
    assert len(ours) == 3
    close(ours, theirs, **SAME_PROGRAM)
    inputs = keras.Input((None, D))
    states = [keras.Input((U,)), keras.Input((U,))]
    outputs = layer(inputs, initial_state=states)
    model = keras.Model([inputs, *states], outputs)
    close(model([x, h, c]), theirs, **SAME_PROGRAM)


def test_a_frozen_layer_stays_frozen_until_it_is_asked():
    dense = layers.Dense(U, trainable=False)
    layer = WeightNormalization(dense)
    layer.build((None, D))
    assert layer.trainable_weights == []
    layer.trainable = True
    assert len(layer.trainable_weights) == 3
    assert WeightNormalization(layers.Dense(U)).trainable


def message(layer, shape=None, **arguments):
    with pytest.raises(ValueError) as raised:
        wrapped = WeightNormalization(layer, **arguments)
        wrapped.build(shape)
    return str(raised.value)


def test_lora_and_quantised_layers():
    refused = "without quantisation or LoRA"
    with_lora = layers.Dense(4)
    with_lora.build((None, 4))
    with_lora.enable_lora(2)
    assert refused in message(with_lora)
    quantised = layers.Dense(4, dtype="int8_from_float32")
    assert refused in message(quantised, (None, 4))
    assert refused in message(layers.Dense(4, lora_rank=2))
    # After it was wrapped, too, and before anything has changed.
    layer = WeightNormalization(layers.Dense(4))
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layer])
    for change in (
        lambda: layer.layer.quantize("int8"),
        lambda: layer.layer.enable_lora(2),
    ):
        with pytest.raises(NotImplementedError, match=refused):
            change()
    x = np.ones((2, 4), "float32")
    expected = layer(x)
    with pytest.warns(UserWarning, match=refused):
        model.quantize("int8")
    close(to_numpy(layer(x)), to_numpy(expected), **SAME_PROGRAM)
    assert model.layers[0].quantization_mode == "int8"
    assert model(x).shape == (2, 4)
    assert layer.remove().quantize("int8") is None


if hasattr(keras, "RematScope"):  # since Keras 3.9

    def test_layers_that_run_again_in_the_backward_pass():
        x = np.random.default_rng(1).normal(size=(4, D)).astype("float32")
        dense = layers.Dense(U, activation="tanh")
        with keras.RematScope(mode="full"):
            again = WeightNormalization(dense)  # the whole of it
            assert "made in a RematScope" in message(layers.LSTM(U))
            nested = layers.Bidirectional(layers.LSTM(U))
        assert "outside of RematScope" in message(nested)
        with keras.RematScope(mode="activations"):
            activation = WeightNormalization(layers.Dense(U, activation="tanh"))
        once = WeightNormalization(layers.Dense(U, activation="tanh"))
        found = []
        for layer in (once, again, activation):
            layer.build(x.shape)
            randomize(layer, 5)
            found.append(value_and_gradients(layer, x))
        for result in found[1:]:
            close(result.gradients, found[0].gradients, **SAME_PROGRAM)
