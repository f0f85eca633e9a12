"""Models in pieces compute what they compute in one call."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import D, randomize
from export_models import in_pieces, streaming
from refusals import refused

import keras_ln
from keras_ln import LNGRU, LNLSTM, WNLSTM, LNGRUCell, LNSimpleRNN, with_states

layers = keras.layers
T = 6
# In Keras' loops keras.ops rounds float64 to float32 on JAX and torch.
KERAS = "float64" if keras.backend.backend() == "tensorflow" else "float32"


def every(kind, *arguments, **options):
    return kind(*arguments, return_sequences=True, **options)


def sequential(*parts, size=(None, 3), **options):
    return keras.Sequential([keras.Input(size, **options), *parts])


def ours():
    return sequential(
        every(LNLSTM, 4, zoneout=0.1, cell_zoneout=0.2, dropout=0.5),
        layers.Dropout(0.5),
        every(LNGRU, 3, name="x"),
        layers.Activation("relu"),
        every(LNSimpleRNN, 4, stateful=True),
        layers.TimeDistributed(layers.Dense(3)),
        every(WNLSTM, 3, projection=2),
        keras_ln.WeightNormDense(2),
        batch_size=2,
    )


def masked():
    return sequential(
        layers.Masking(), every(LNGRU, 4), LNLSTM(3), layers.Dense(2)
    )


def masked_of_keras():
    return sequential(
        layers.Masking(), every(layers.GRU, 4), every(layers.LSTM, 3)
    )


def of_keras():
    cells = [layers.LSTMCell(3), LNGRUCell(4), layers.SimpleRNNCell(2)]
    return sequential(
        every(layers.RNN, cells),
        every(layers.RNN, LNGRUCell(4)),
        every(layers.SimpleRNN, 3),
        layers.BatchNormalization(),
        layers.LSTM(3),
    )


def words():
    """A nested model, a layer called twice, a mask of words."""
    inputs = keras.Input((None,), dtype="int32")
    first = keras.Input((None,), dtype="bool", name="first")
    x = layers.Embedding(5, 4, mask_zero=True)(inputs)
    layer = every(LNLSTM, 4)
    y = layer(layer(x), reset=first)
    inside = keras.Sequential([keras.Input((None, 4)), every(LNLSTM, 4)])
    return keras.Model([inputs, first], layers.Concatenate()([y, inside(y), x]))


CASES = [(ours, 1), (ours, 3), (masked, 1), (masked, 2)]
CASES += [(words, 1), (words, 2), (masked_of_keras, 1), (of_keras, 1)]


@pytest.fixture
def bound(make):
    """In the dtype in which the loops of these layers compute."""
    dtype = KERAS if "keras" in make.__name__ else "float64"
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    yield {"float64": 1e-12, "float32": 3e-6}[dtype]
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def samples(model):
    rng = np.random.default_rng(1)
    arrays = []
    for given in model.inputs:
        x = rng.integers(0, 2, (2, T))
        if len(given.shape) == 3:
            x = x[..., None] * rng.normal(size=(2, T, 3))
        arrays.append(x.astype(given.dtype))
    return arrays


@pytest.mark.every_backend
# Keras says that Sequential destroys masks, which it does behind itself.
@pytest.mark.filterwarnings("ignore:.*destroy the mask:UserWarning")
@pytest.mark.parametrize("make, steps", CASES)
def test_pieces_are_the_whole(make, steps, bound):
    model = randomize(make())
    if make is ours:
        model.layers[4].states[0].assign(np.ones((2, 4)))
    stream, x = with_states(model, steps), samples(model)
    if make is ours:
        close(model.layers[4].states[0], np.ones((2, 4)))
    found = in_pieces(stream, stream, x, steps)
    for k, piece in enumerate(found, start=1):
        if make is ours:
            model.layers[4].reset_state()
        first = [a[:, : k * steps] for a in x]
        y = to_numpy(model(first if len(first) > 1 else first[0]))
        expected = y[:, -steps:] if y.ndim == 3 else y
        close(piece, expected, rtol=bound, atol=bound)


@pytest.mark.every_backend
def test_eight_steps_in_float32():
    model = randomize(streaming())
    stream = with_states(model)
    x = np.random.default_rng(1).normal(size=(1, 8, D)).astype("float32")
    found = np.concatenate(in_pieces(stream, stream, x), axis=1)
    close(found, model(x), rtol=1e-5, atol=1e-5)


def test_pieces_share_weights(tmp_path):
    model = streaming()
    stream = with_states(model)
    ids = sorted(id(weight) for weight in stream.weights)
    assert ids == sorted(id(weight) for weight in model.weights)
    names = [x.name for x in stream.inputs]
    given = [name.partition("_")[2] or name for name in names]
    assert names[0] == "x" and [n[-1] for n in given[1:]] == [*"hchch"]
    assert stream.output_names[1:] == [f"new_{name}" for name in names[1:]]
    stream.save(tmp_path / "stream.keras")
    loaded = keras.saving.load_model(tmp_path / "stream.keras")
    x = np.ones((1, 3, D), "float32")
    close(in_pieces(loaded, stream, x), in_pieces(stream, stream, x))


class Derived(layers.LSTM):
    pass


def operation(function):
    inputs = keras.Input((T, 3))
    return keras.Model(inputs, function(inputs))


REFUSED = {
    "bidirectional.*from their end too": lambda: layers.Bidirectional(
        layers.LSTM(3)
    ),
    "from their end .go_back": lambda: layers.LSTM(3, go_backwards=True),
    "number of the step": lambda: keras_ln.BNLSTM(3, max_steps=T),
    "derived classes": lambda: Derived(3),
    "LNLSTMCell .*count steps": lambda: layers.RNN(
        keras_ln.LNLSTMCell(3, zoneout=0.1)
    ),
    "in float16, and": lambda: layers.LSTM(3, dtype="mixed_float16"),
    "Conv1D: it may mix.*TimeDistributed": lambda: layers.Conv1D(3, 2),
    "Flatten: it may mix": layers.Flatten,
    "Lambda: it may mix": lambda: layers.Lambda(lambda x: x),
    "RepeatVector: it may mix": lambda: keras.Sequential(
        [layers.LSTM(3), layers.RepeatVector(T)]
    ),
    "Softmax: its axis": lambda: layers.Softmax(axis=1),
    "its axis": lambda: layers.LayerNormalization(axis=(-2, -1)),
    "PReLU: it may": layers.PReLU,
    "EinsumDense: its results in pieces differ": lambda: layers.EinsumDense(
        "btd,dk->bk", 3
    ),
    "GetItem: it may mix": lambda: operation(lambda x: x[:, 1:]),
    "called with `initial_state`": lambda: operation(
        lambda x: LNGRU(3)(x, initial_state=LNGRU(3)(x))
    ),
    "LSTM: its results": lambda: sequential(
        layers.Masking(), every(layers.LSTM, 3), size=(T, 3)
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words):
    model = REFUSED[words]()
    if not hasattr(model, "inputs") or not isinstance(model, keras.Model):
        model = sequential(model, size=(T, 3))
    steps = 2 if "results" in words else 1
    with refused(words, "with_states cannot take"):
        with_states(randomize(model), steps)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((layers.LSTM(3),), "functional and Sequential models that are built"),
        ((keras.Sequential(),), "that are built"),
        ((sequential(layers.Dense(3)), 0), "`steps` must be a positive"),
        ((operation(lambda x: x), True), "`steps` must be a positive"),
        ((sequential(layers.Activation("relu"), size=()),), "dense inputs"),
    ],
)
def test_bad_arguments(arguments, words):
    with refused(words):
        with_states(*arguments)
