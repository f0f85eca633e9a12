"""with_layer_norm: compilation, inputs, own weights and vocabularies.

Letters: B batch, T time, D input features, U units.
"""

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from converted import (
    CLOSE,
    B,
    D,
    T,
    U,
    assert_same,
    message,
    model_of,
    predictions,
    randomize,
)

from keras_ln import to_keras, with_fast_rnn, with_layer_norm

layers = keras.layers


def own_loss(y, predicted):
    return keras.ops.mean((y - predicted) ** 2)


def functional(*parts):
    inputs = keras.Input((T, D))
    x = inputs
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


@pytest.mark.parametrize("make", [model_of, functional])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "mse"},
        {"loss": own_loss},
        {"loss": lambda y, p: own_loss(y, p)},
        {"loss": "mse", "metrics": [own_loss]},
    ],
    ids=["standard", "own loss", "lambda", "own metric"],
)
def test_the_clone_is_not_compiled(make, options):
    inner = make(layers.LSTM(U, return_sequences=True))
    model = make(inner, layers.TimeDistributed(layers.Dense(2)))
    for one in (inner, model):
        one.compile("adam", **options)
    clone = with_layer_norm(model)
    assert not clone.compiled
    assert not clone.get_layer(inner.name).compiled
    # The model itself still is.
    assert model.compiled and inner.compiled
    assert "needs reset_after=True" in message(
        model_of(inner, layers.GRU(U, reset_after=False))
    )
    assert inner.compiled


class Scaled(keras.Model):
    """A model with a weight of its own beside its layers'."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.dense = layers.Dense(D)

    def build(self, shape):
        self.scale = self.add_weight(name="scale", shape=(D,))
        self.dense.build(shape)
        self.built = True

    def call(self, x):
        return self.dense(x) * self.scale

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {"name": self.name}


class Weighted(keras.Model):
    """A functional model with a weight of its own."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.weight = self.add_weight(name="weight", shape=(2,))


class Gated(layers.Wrapper):
    """A wrapper with a layer of its own beside the one that it wraps."""

    def build(self, shape):
        self.gate = layers.Dense(D)
        self.gate.build(shape)
        super().build(shape)

    def call(self, x):
        return self.layer(x) * self.gate(x)

    def compute_output_shape(self, shape):
        return shape


def test_the_own_layers_of_wrappers():
    model = model_of(Gated(layers.LSTM(D, return_sequences=True)))
    randomize(model)
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))


def test_the_own_weights_of_models():
    inputs = keras.Input((T, D))
    within = Weighted(inputs, Scaled()(inputs), name="within")
    model = Weighted(
        inputs, layers.LSTM(U)(layers.TimeDistributed(Scaled())(within(inputs)))
    )
    randomize(model)
    clone = with_layer_norm(model, ())
    assert_same(model, clone, example(B, T, D))
    for one, other in ((clone, model), (clone.get_layer("within"), within)):
        np.testing.assert_array_equal(
            to_numpy(one.weight), to_numpy(other.weight)
        )


if keras.backend.backend() == "tensorflow":  # On which words are looked up.

    @pytest.mark.every_backend
    def test_vocabularies():
        import tensorflow as tf

        inputs = {
            "text": keras.Input((), dtype="string", name="text"),
            "word": keras.Input((T,), dtype="string", name="word"),
            "number": keras.Input((T,), dtype="int64", name="number"),
        }
        learnt = {
            "text": layers.TextVectorization(output_sequence_length=T),
            "word": layers.StringLookup(),
            "number": layers.IntegerLookup(),
        }
        texts = ["a b c d e f", "b c f f f"]
        learnt["text"].adapt(texts)
        learnt["word"].adapt(["a", "b", "c", "b"])
        learnt["number"].adapt([10, 20, 30, 20])
        embedded = [
            layers.Embedding(12, D)(learnt[name](x))
            for name, x in inputs.items()
        ]
        model = keras.Model(inputs, layers.LSTM(U)(sum(embedded)))
        clone = with_layer_norm(model, ())
        x = {
            "text": tf.constant(["f e d", "c b"]),
            "word": tf.constant([["a", "b", "c", "d", "a"]] * 2),
            "number": tf.constant([[10, 20, 30, 40, 10]] * 2, tf.int64),
        }
        assert_same(model, clone, x)
        for layer in learnt.values():
            found = clone.get_layer(layer.name)
            assert found is not layer
            assert found.get_vocabulary() == layer.get_vocabulary()
        # There may be none yet.
        text = layers.TextVectorization()
        model = keras.Sequential(
            [
                keras.Input((), dtype="string"),
                text,
                layers.Embedding(12, D),
                layers.LSTM(U),
            ]
        )
        with_layer_norm(model).layers[0].adapt(texts)


class Added(layers.Layer):
    def call(self, one, other=None):
        return one if other is None else one + other

    def compute_output_shape(self, one_shape, other_shape=None):
        return one_shape


def test_optional_inputs():
    inputs = [
        keras.Input((T, D), name="x"),
        keras.Input((T, D), name="more", optional=True),
    ]
    model = keras.Model(inputs, layers.LSTM(U)(Added()(*inputs)))
    clone = with_layer_norm(model, ())
    x, more = example(B, T, D), example(B, T, D, seed=2)
    for given in (None, more):
        assert_same(model, clone, [x, given])
    assert [one.name for one in clone.input] == ["x", "more"]


@pytest.mark.parametrize("make", [model_of, functional])
def test_frozen_models(make):
    inner = make(layers.LSTM(U, return_sequences=True))
    model = make(inner, layers.Dense(2))
    inner.trainable = False
    clone = with_layer_norm(model)
    assert clone.trainable and not clone.get_layer(inner.name).trainable
    assert len(clone.trainable_weights) == 2
    model.trainable = False
    clone = with_layer_norm(model)
    assert not clone.trainable and not clone.trainable_weights


CLONES = {
    "with_fast_rnn": with_fast_rnn,
    "and back": lambda model: to_keras(with_fast_rnn(model)),
    "with_layer_norm and back": lambda m: to_keras(with_layer_norm(m, ())),
}


def by_path(model, read):
    return {weight.path: read(weight) for weight in model.weights}


@pytest.mark.every_backend
@pytest.mark.parametrize("name", CLONES)
def test_clones_keep_what_is_set_on_a_weight(name):
    sequence = {"return_sequences": True, "kernel_regularizer": "l2"}
    model = model_of(
        *(layers.LSTM(U, **sequence), layers.GRU(U, **sequence)),
        layers.Bidirectional(layers.LSTM(U)),
        layers.Dense(2),
    )
    randomize(model)
    model.layers[-1].quantize("float8")  # A clone orders its weights anew.
    for layer in (*model.layers[::2], model.layers[1].cell):
        layer.trainable = False
    for k, weight in enumerate(model.weights):
        weight.trainable = k % 3 == 2  # Biases of frozen cells.
        if k % 2:
            weight.regularizer = keras.regularizers.L2(0.1 * k)
            weight.constraint = keras.constraints.MaxNorm(k)
        else:
            weight.regularizer = None
    clone = CLONES[name](model)
    found, expected = (
        by_path(
            one,
            lambda w: (
                w.trainable,
                getattr(w.regularizer, "l2", None),
                getattr(w.constraint, "max_value", None),
            ),
        )
        for one in (clone, model)
    )
    assert found == expected
    assert len(clone.trainable_weights) == len(model.trainable_weights) > 2
    parts = [
        [part.trainable for part in one._flatten_layers()]
        for one in (clone, model)
    ]
    assert parts[0] == parts[1]
    own, theirs = (one.weights[1].regularizer for one in (clone, model))
    assert own is not theirs


@pytest.mark.every_backend
@pytest.mark.parametrize("name", CLONES)
@pytest.mark.parametrize("state", ["enabled", "trained", "int8"])
def test_clones_keep_lora(name, state):
    quantised = [
        layers.Embedding(9, D),
        layers.EinsumDense("btd,de->bte", (None, D), bias_axes="e"),
        layers.Dense(2),
    ]
    convolution = layers.Conv1D(D, 1)
    model = keras.Sequential(
        [
            keras.Input((T,), dtype="int32"),
            *(*quantised[:2], convolution, layers.LSTM(U), quantised[2]),
        ]
    )
    randomize(model)
    for layer in (*quantised, convolution):
        layer.enable_lora(2)
        layer.lora_alpha = 1.0
    for k, weight in enumerate(model.weights):
        if "lora" in weight.name and state != "enabled":
            weight.assign(0.5 * example(*weight.shape, seed=k))
    if state == "int8":
        for layer in quantised:
            layer.quantize(state)
    clone = CLONES[name](model)
    found, expected = (
        by_path(one, lambda w: (w.trainable, to_numpy(w).tolist()))
        for one in (clone, model)
    )
    assert found == expected
    assert_same(model, clone, np.arange(B * T).reshape(B, T) % 9)


def test_the_recurrent_bias_of_a_gru_stays_regularised():
    bound = keras.constraints.MaxNorm(0.1)
    model = model_of(
        layers.GRU(U, bias_regularizer="l2", bias_constraint=bound)
    )
    randomize(model)
    for normalize in (None, ["kernel"], []):
        clone = with_layer_norm(model, normalize)
        np.testing.assert_allclose(
            *(to_numpy(sum(one.losses)) for one in (clone, model)), rtol=1e-5
        )
        cell = clone.layers[0].cell
        site = cell.recurrent_beta
        inside = cell.recurrent_bias if site is None else site
        assert inside.constraint.max_value == 0.1
    plain = model_of(layers.GRU(U, use_bias=False, bias_regularizer="l2"))
    assert not with_layer_norm(plain).losses


@pytest.mark.parametrize("kind, states", [(layers.LSTM, 2), (layers.GRU, 1)])
def test_outputs_at_masked_first_steps(kind, states):
    """The one place where the clone predicts something else."""
    inputs = keras.Input((T, D)), keras.Input((T,), dtype="bool")
    initial = [keras.Input((U,)) for _ in range(states)]
    y = kind(U, return_sequences=True)(
        inputs[0], mask=inputs[1], initial_state=initial
    )
    model = keras.Model([*inputs, *initial], y)
    clone = with_layer_norm(model, ())
    mask = np.arange(T) >= 2 * np.ones((B, 1))
    h = example(B, U, seed=2)
    x = [example(B, T, D), mask, *[h, 2 * h][:states]]
    found, expected = (predictions(one, x)[0] for one in (clone, model))
    np.testing.assert_array_equal(found[:, :2], np.stack([h, h], 1))
    close(found[:, 2:], expected[:, 2:], **CLOSE)
