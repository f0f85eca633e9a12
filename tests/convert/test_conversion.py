"""Models of Keras' layers into ours, and back."""

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from converted import (
    B,
    D,
    T,
    U,
    assert_same,
    kinds_in,
    model_of,
    predictions,
    randomize,
)

import keras_ln
from keras_ln import to_keras, with_fast_rnn, with_layer_norm

layers = keras.layers
N = 9


def words(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, N, shape)


def trained(model, x, y, folder):
    """The model after some steps, as it comes out of a file."""
    model.compile(keras.optimizers.Adam(0.05), "mse")
    model.fit(x, y, B, epochs=3, verbose=0)
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras", compile=False)


def recurrent(kind, *arguments, **options):
    """A recurrent layer of Keras that runs on every backend.

    The loop of its GRU in float32 refuses, on JAX with 64 bits, a carry of
    two dtypes.
    """
    if kind == "GRU" and keras.backend.backend() == "jax":
        options["dtype"] = "float64"
    return getattr(layers, kind)(*arguments, **options)


def tagger():
    """As for IMDB: embedded words, masks, both directions, tags."""
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(N, D, mask_zero=True),
            layers.SpatialDropout1D(0.1),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            layers.TimeDistributed(layers.Dense(2, activation="softmax")),
        ]
    )


def test_tagger(tmp_path):
    x = words(B, T)
    x[0, :2] = 0  # masks that are no padding
    model = trained(tagger(), x, example(B, T, 2), tmp_path)
    clone = with_layer_norm(model, normalize=())
    assert_same(model, clone, x)
    bidirectional = clone.layers[2]
    for part in (bidirectional.forward_layer, bidirectional.backward_layer):
        assert type(part) is keras_ln.LNLSTM and part.normalize == ()
    assert bidirectional.backward_layer.go_backwards
    assert [layer.name for layer in clone.layers] == [
        layer.name for layer in model.layers
    ]


def everything():
    """Cells, stacked ones, models in models, a layer that is used twice."""
    inputs = keras.Input((T, D), name="steps")
    shared = layers.LSTM(U, return_sequences=True, name="shared")
    inner = keras.Input((T, U))
    within = keras.Sequential(
        [
            layers.Dense(U),
            keras.Sequential(
                [
                    layers.SimpleRNN(U, return_sequences=True, name="simple"),
                    layers.BatchNormalization(),
                ]
            ),
        ]
    )
    nested = keras.Model(
        inner, layers.Conv1D(U, 2, padding="same")(within(inner)), name="nested"
    )
    x = layers.Normalization(mean=1.0, variance=4.0)(inputs)
    x = layers.Lambda(lambda t: 2.0 * t)(x)
    x = shared(layers.Dense(U)(x))
    x = keras.ops.tanh(shared(x) + nested(x))
    x = layers.RNN(
        layers.StackedRNNCells([layers.LSTMCell(U), layers.SimpleRNNCell(U)]),
        return_sequences=True,
        name="stacked",
    )(x)
    y = layers.RNN(layers.LSTMCell(2, dropout=0.1), name="cells")(x)
    frames = layers.Reshape((T, 2, 2))(x)
    pictures = keras.Sequential([layers.LSTM(3)], name="pictures")
    z = layers.TimeDistributed(pictures, name="frames")(frames)
    return keras.Model(inputs, {"y": y, "z": z}, name="everything")


def test_everything_that_holds_a_recurrent_layer():
    model, x = everything(), example(B, T, D)
    for weight in model.weights:
        weight.assign(0.4 * example(*weight.shape, seed=7) ** 2)
    clone = with_layer_norm(model, normalize=())
    assert_same(model, clone, x)
    found = kinds_in(clone)
    assert {"LNLSTM", "LNLSTMCell"} <= found
    assert not found & {"LSTM", "LSTMCell"}
    # It has no sites to leave out.
    assert found >= {"SimpleRNN", "SimpleRNNCell"}
    assert sum(layer.name == "shared" for layer in clone.layers) == 1
    assert clone.name == "everything" and list(clone.output) == ["y", "z"]
    assert clone.count_params() == model.count_params()

    normalized = with_layer_norm(model)
    found = kinds_in(normalized)
    assert found >= {"LNSimpleRNN", "LNSimpleRNNCell", "LNLSTM", "LNLSTMCell"}
    assert not found & {"LSTM", "LSTMCell", "SimpleRNN", "SimpleRNNCell"}
    cell = normalized.get_layer("stacked").cell.cells[0]
    theirs = model.get_layer("stacked").cell.cells[0]
    assert cell.normalize == ("kernel", "recurrent", "state")
    for name in ("kernel", "recurrent_kernel", "bias"):
        np.testing.assert_array_equal(
            to_numpy(getattr(cell, name)), to_numpy(getattr(theirs, name))
        )
    np.testing.assert_array_equal(to_numpy(cell.state_gamma), np.ones(U))
    y = predictions(normalized, x)
    assert abs(y[0] - predictions(model, x)[0]).max() > 1e-3
    # The model is what it was.
    assert not any(name.startswith("LN") for name in kinds_in(model))


def states_of_both_directions():
    """They are handed on, and the decoder starts from them."""
    inputs = keras.Input((T, D))
    encoder = layers.Bidirectional(layers.LSTM(U, return_state=True))
    _, *states = encoder(inputs)
    decoder = layers.Bidirectional(
        layers.LSTM(U, return_sequences=True), merge_mode="sum"
    )
    return keras.Model(inputs, decoder(inputs, initial_state=states))


def grus(**options):
    """Masked steps in front and behind, both directions, a cell, backwards."""
    return keras.Sequential(
        [
            keras.Input((T, D)),
            layers.Masking(),
            recurrent("GRU", U, return_sequences=True, **options),
            layers.Bidirectional(
                recurrent("GRU", U, return_sequences=True, **options),
                backward_layer=recurrent(
                    "GRU",
                    U,
                    go_backwards=True,
                    return_sequences=True,
                    **options,
                ),
            ),
            layers.RNN(
                recurrent("GRUCell", 2, **options),
                go_backwards=True,
                dtype=recurrent("GRUCell", 2).dtype_policy,
            ),
        ]
    )


def beside_others():
    """Our layers, wrapped ones, and recurrent ones of another kind."""
    return keras.Sequential(
        [
            keras.Input((T, D)),
            keras_ln.WNLSTM(U, return_sequences=True),
            keras_ln.WeightNormalization(layers.LSTM(U, return_sequences=True)),
            layers.RNN(
                [keras_ln.LNSimpleRNNCell(U), layers.LSTMCell(U)],
                return_sequences=True,
            ),
            layers.Reshape((T, U, 1)),
            layers.ConvLSTM1D(2, 2, return_sequences=True),
            layers.TimeDistributed(layers.Flatten()),
            layers.LSTM(2, unroll=True, dropout=0.1),
        ]
    )


@pytest.mark.parametrize(
    "make",
    [
        states_of_both_directions,
        grus,
        lambda: grus(use_bias=False, recurrent_activation="hard_sigmoid"),
        beside_others,
    ],
    ids=["states", "GRU", "GRU without bias", "others"],
)
def test_models_of_many_kinds(make):
    x = example(B, T, D)
    x[0, :2], x[1, 3:] = 0.0, 0.0
    model = make()
    for weight in model.weights:
        weight.assign(0.5 * example(*weight.shape, seed=7) + 0.1)
    assert_same(model, with_layer_norm(model, normalize=()), x)
    assert {"GRU", "LSTM", "GRUCell", "LSTMCell"}.isdisjoint(
        kinds_in(with_layer_norm(model))
    )


def test_layers_of_ours_as_layers_of_keras():
    shared = {"normalize": (), "return_sequences": True}
    plain = model_of(
        keras_ln.LNLSTM(U, dropout=0.1, **shared),
        layers.Bidirectional(keras_ln.LNGRU(U, use_bias=True, **shared)),
        keras_ln.LNGRU(U, **shared),
        layers.RNN([keras_ln.LNLSTMCell(U, normalize=()), layers.GRUCell(2)]),
    )
    randomize(plain)
    back = to_keras(plain)
    found = kinds_in(back)
    assert {"LSTM", "GRU", "LSTMCell", "GRUCell"} <= found
    assert not any(name.startswith("LN") for name in found)
    data = example(B, T, D)
    close(
        predictions(back, data), predictions(plain, data), rtol=1e-5, atol=1e-5
    )
    start = keras_ln.LogUniformForgetBias(U, 9)
    named = layers.LSTM(U, unit_forget_bias=False, bias_initializer=start)
    model = model_of(named)
    assert "keras_ln" in str(model.get_config())
    back = to_keras(with_fast_rnn(model))
    assert "keras_ln" not in str(back.get_config())
    np.testing.assert_array_equal(
        to_numpy(back.weights[2]), to_numpy(model.weights[2])
    )


def reset():
    x, flags = keras.Input((T, D)), keras.Input((T,), dtype="bool")
    layer = keras_ln.LNLSTM(U, normalize=(), name="mine")
    return keras.Model([x, flags], layer(x, reset=flags))


def function():
    x = keras.Input((T, D))
    y = keras_ln.ops.layer_normalization(x, np.ones(D, "float32"))
    return keras.Model(x, y)


class Ours(layers.Layer):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.inner = keras_ln.LNLSTM(U, normalize=(), name="mine")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)


MINE = {"name": "mine"}
BARE = MINE | {"normalize": ()}


@pytest.mark.parametrize(
    "given, expected",
    [
        (keras_ln.LNLSTM(U, **MINE), "normalize="),
        (keras_ln.LNLSTM(U, cell_zoneout=0.1, **BARE), "cell_zoneout=0.1"),
        (
            keras_ln.LNGRU(U, recurrent_activation="relu", **BARE),
            "needs f(-z) = 1 - f(z) for the recurrent_activation",
        ),
        (
            keras_ln.LNGRU(U, kernel_constraint="non_neg", **BARE),
            "needs f(-w) = -f(w) for the kernel_constraint",
        ),
        (keras_ln.LNSimpleRNN(U, **MINE), "no such"),
        (keras_ln.WNLSTM(U, **MINE), "no such layer"),
        (keras_ln.LayerNormalization(**MINE), "no such"),
        (reset, "called with `reset`"),
        (Ours(), "inside of a layer of another class"),
        (function, "functions of keras_ln.ops"),
    ],
)
def test_to_keras_refuses_by_name(given, expected):
    model = given() if given in (reset, function) else model_of(given)
    with pytest.raises(ValueError, match="to_keras cannot replace") as raised:
        to_keras(model)
    assert expected in str(raised.value)
    if given is not function:
        assert "'mine'" in str(raised.value)
