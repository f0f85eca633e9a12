"""with_layer_norm: trained models in which Keras' recurrent layers stand.

Letters: B batch, T time, D input features, U units, N words.
"""

import keras
import numpy as np
import pytest
from converted import (
    CLOSE,
    B,
    D,
    T,
    U,
    assert_same,
    example,
    message,
    model_of,
    predictions,
    to_numpy,
)

import keras_ln
from keras_ln import with_layer_norm

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


def kinds_in(model):
    return {type(part).__name__ for part in model._flatten_layers()}


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


def test_groups_and_the_sum():
    model = keras.Sequential(
        [
            keras.Input((T, D)),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            recurrent("GRU", U, return_sequences=True),
            layers.SimpleRNN(U),
        ]
    )
    clone = with_layer_norm(model, ("sum", "state"), groups="gate")
    bidirectional, gru, simple = clone.layers
    for part in (bidirectional.forward_layer, bidirectional.backward_layer):
        assert part.normalize == ("state", "sum") and part.groups == "gate"
    x = example(B, T, D)
    by_hand = keras_ln.LNLSTM(
        U, normalize=("sum", "state"), groups="gate", return_sequences=True
    )
    by_hand.build((B, T, D))
    lstm = model.layers[0].forward_layer
    for name in ("kernel", "recurrent_kernel", "bias"):
        getattr(by_hand.cell, name).assign(getattr(lstm.cell, name))
    np.testing.assert_allclose(
        to_numpy(by_hand(x)), to_numpy(bidirectional(x))[..., :U], **CLOSE
    )
    assert (gru.normalize, gru.groups) == ((), "gate")
    assert type(simple) is keras_ln.LNSimpleRNN
    with pytest.raises(ValueError, match="`groups` must be one of"):
        with_layer_norm(model, groups="gates")
    with pytest.raises(ValueError, match='`normalize` must have "sum" in'):
        with_layer_norm(model, ("sum", "kernel"))


def sequence_to_sequence(kind):
    """The encoder's states are where the decoder starts."""
    source = keras.Input((None, D), name="source")
    target = keras.Input((None, D), name="target")
    encoder = recurrent(kind, U, return_state=True, name="encoder")
    _, *states = encoder(source)
    decoder = recurrent(kind, U, return_sequences=True, name="decoder")
    y = decoder(target, initial_state=states)
    return keras.Model({"source": source, "target": target}, layers.Dense(2)(y))


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_sequence_to_sequence(name, tmp_path):
    x = {"source": example(B, T, D), "target": example(B, T, D, seed=2)}
    model = trained(
        sequence_to_sequence(name), x, example(B, T, 2, seed=3), tmp_path
    )
    clone = with_layer_norm(model, normalize=())
    assert_same(model, clone, x)
    ours = getattr(keras_ln, f"LN{name}")
    assert type(clone.get_layer("decoder")) is ours
    assert type(clone.get_layer("encoder")) is ours


def generator(name, batch=None, stateful=False):
    """Words to the probabilities of the next ones."""
    return keras.Sequential(
        [
            keras.Input(batch_shape=(batch, None), dtype="int32"),
            layers.Embedding(N, D),
            recurrent(name, U, stateful=stateful, return_sequences=True),
            layers.Dense(N, activation="softmax"),
        ]
    )


def generate(model, count):
    """The probabilities of each next word, of which the likeliest is taken."""
    word, found = np.array([[1]]), []
    for _ in range(count):
        found.append(to_numpy(model(word))[0, 0])
        word = found[-1].argmax().reshape(1, 1)
    return np.stack(found)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_stateful_generator(name, tmp_path):
    # Keras' own stateful layers do not train on torch.
    y = np.eye(N)[words(B, T, seed=2)]
    teacher = trained(generator(name), words(B, T), y, tmp_path)
    model = generator(name, batch=1, stateful=True)
    model.set_weights(teacher.get_weights())
    generate(model, 3)
    # In the midst of a text: the state comes along.
    clone = with_layer_norm(model, normalize=())
    np.testing.assert_allclose(generate(clone, 6), generate(model, 6), **CLOSE)
    assert clone.layers[1].stateful
    for one in (model, clone):
        one.layers[1].reset_state()
    np.testing.assert_allclose(generate(clone, 6), generate(model, 6), **CLOSE)


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


class Scaled(layers.Layer):
    """A class that nobody has registered."""

    def call(self, x):
        return 2.0 * x

    def compute_output_shape(self, input_shape):
        return input_shape


def test_layers_that_are_shared_and_classes_that_are_not_registered():
    shared = layers.LSTM(D, return_sequences=True, name="shared")
    inner = keras.Sequential([keras.Input((T, D)), shared], name="inner")
    inputs = keras.Input((T, D))
    y = layers.TimeDistributed(Scaled())(inner(shared(inputs)))
    model = keras.Model(inputs, y)
    clone = with_layer_norm(model, normalize=())
    assert clone.get_layer("inner").layers[0] is clone.get_layer("shared")
    assert clone.count_params() == model.count_params()
    assert_same(model, clone, example(B, T, D))


def test_the_biases_of_a_normalised_gru():
    """Where a beta does what the recurrent bias did, it takes its place."""
    model = model_of(layers.GRU(U))
    theirs = model.layers[0].cell
    theirs.bias.assign(example(2, 3 * U))
    turned = example(2, 3 * U) * np.repeat([-1, 1, 1], U)
    for normalize, center in (None, "recurrent_beta"), (["kernel"], None):
        ours = with_layer_norm(model, normalize).layers[0].cell
        np.testing.assert_array_equal(to_numpy(ours.bias), turned[0])
        inside = ours.recurrent_beta if center else ours.recurrent_bias
        np.testing.assert_array_equal(to_numpy(inside), turned[1])


def test_the_clone_is_independent_and_trains(tmp_path):
    model = tagger()
    before = [np.array(w) for w in model.get_weights()]
    clone = with_layer_norm(model)
    x, y = words(B, T), example(B, T, 2)
    clone.compile("adam", "mse")
    clone.fit(x, y, verbose=0)
    for weight, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)
    assert abs(clone.get_weights()[0] - before[0]).max() > 1e-4
    clone.save(tmp_path / "clone.keras")
    loaded = keras.saving.load_model(tmp_path / "clone.keras")
    np.testing.assert_array_equal(
        predictions(loaded, x)[0], predictions(clone, x)[0]
    )


@pytest.mark.parametrize(
    "asked, lstm, gru, simple",
    [
        (None, ("kernel", "recurrent", "state"), ("kernel", "recurrent"), True),
        (("state", "kernel"), ("kernel", "state"), ("kernel",), True),
        (["state"], ("state",), (), False),
    ],
)
def test_a_layer_takes_the_sites_that_it_has(asked, lstm, gru, simple):
    model = keras.Sequential(
        [
            keras.Input((T, D)),
            layers.LSTM(U, return_sequences=True),
            layers.GRU(U, return_sequences=True),
            layers.SimpleRNN(U),
        ]
    )
    ours = with_layer_norm(model, asked).layers
    assert ours[0].normalize == lstm
    assert ours[1].normalize == gru
    assert isinstance(ours[2], keras_ln.LNSimpleRNN) == simple


def test_without_copied_weights():
    model = keras.Sequential([layers.LSTM(U), layers.Dense(2)])
    clone = with_layer_norm(model, copy_weights=False)  # not built either
    assert not clone.built
    assert clone(example(B, T, D)).shape == (B, 2)
    model(example(B, T, D))
    clone = with_layer_norm(model, copy_weights=False)
    kernels = [m.layers[1].kernel for m in (clone, model)]
    assert abs(to_numpy(kernels[0]) - to_numpy(kernels[1])).max() > 1e-3
    # Built by a call, without an Input.
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))


def test_adapted_layers_keep_what_they_have_learnt():
    normalization = layers.Normalization()
    normalization.adapt(3.0 + example(32, D))
    model = keras.Sequential(
        [keras.Input((T, D)), normalization, layers.LSTM(U)]
    )
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))


class Subclassed(keras.Model):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.lstm = layers.LSTM(U, name="within")

    def call(self, x):
        return self.lstm(x)


@keras.saving.register_keras_serializable(package="tests")
class Derived(layers.LSTM):
    pass


@keras.saving.register_keras_serializable(package="tests")
class Cell(layers.Layer):
    state_size = U

    def call(self, inputs, states):
        return states[0], states


@keras.saving.register_keras_serializable(package="tests")
class Own(keras.Sequential):
    pass


class Closed(layers.Layer):
    """Its constructor's argument is not in its config."""

    def __init__(self, function, **arguments):
        super().__init__(**arguments)
        self.function = function

    def call(self, x):
        return self.function(x)


def test_what_is_no_model_of_layers():
    takes = "takes functional and Sequential models"
    assert takes in message(Subclassed(name="mine"))
    assert "'mine' of class Subclassed" in message(Subclassed(name="mine"))
    for layer, ours in (
        (layers.LSTM(U), "LNLSTM"),
        (layers.GRUCell(U), "LNGRUCell"),
    ):
        advice = f"use keras_ln.{ours}.from_config(layer.get_config())."
        assert takes in message(layer) and advice in message(layer)
    assert "from_config" not in message(layers.Dense(U))
    inside = "Put the layer into a model: keras.Sequential([keras.Input(...), "
    assert inside in message(layers.Bidirectional(layers.LSTM(U)))
    assert takes in message(None)
    own = Own([keras.Input((T, D)), layers.LSTM(U)], name="own")
    assert "a class of its own from layers. Received: 'own'" in message(own)
    assert "there are none yet" in message(keras.Sequential([layers.LSTM(U)]))
    assert "`normalize` must be a tuple of any of" in message(
        model_of(layers.LSTM(U)), ("cell",)
    )


def test_layers_that_have_no_counterpart():
    derived = model_of(Derived(U, name="mine"))
    assert "derived from Keras' recurrent layers" in message(derived)
    assert "'mine' of class Derived" in message(derived)
    cell = model_of(layers.RNN(Cell(name="mine")))
    assert "knows the cells of LSTM, GRU and SimpleRNN" in message(cell)
    assert "'mine' of class Cell" in message(cell)
    inside = model_of(Subclassed(name="mine"))
    assert "cannot replace what a layer of another class holds" in message(
        inside
    )
    assert "with 'within' inside" in message(inside)
    closed = model_of(Closed(lambda x: x, name="mine"))
    assert "cannot clone the layer 'mine' of class Closed" in message(closed)


def test_gru_that_cannot_be_expressed():
    before = model_of(layers.GRU(U, reset_after=False, name="mine"))
    assert "needs reset_after=True" in message(before)
    assert "Received: 'mine' with reset_after=False" in message(before)
    gate = model_of(layers.GRU(U, recurrent_activation="relu", name="mine"))
    assert "needs f(-z) = 1 - f(z)" in message(gate)
    clone = with_layer_norm(gate, copy_weights=False)
    assert type(clone.layers[0]) is keras_ln.LNGRU


@pytest.mark.parametrize("copy_weights", [False, True])
def test_nothing_to_replace(copy_weights):
    model = keras.Sequential(
        [keras.Input((T, D)), keras_ln.LNLSTM(U), layers.Dense(1)], name="mine"
    )
    with pytest.warns(UserWarning, match="no LSTM, GRU or SimpleRNN.*'mine'"):
        clone = with_layer_norm(model, copy_weights=copy_weights)
    assert kinds_in(clone) == kinds_in(model)
