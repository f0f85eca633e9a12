"""with_fast_rnn and to_keras: the same numbers by another loop, and back.

Letters: B batch, T time, D input features, U units.
"""

import itertools

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from converted import B, D, T, U, kinds_in, model_of, predictions, randomize

import keras_ln
from keras_ln import rnn_summary, to_keras, with_fast_rnn
from keras_ln.layers.rnn import fast as fast_layers

layers = keras.layers
BACKEND = keras.backend.backend()
# keras.ops.matmul of Keras' own loop rounds float64 to float32 on torch
# (3.15.1), and its activations do on JAX.
DOUBLE = 1e-12 if BACKEND == "tensorflow" else 3e-6
MASKS = {
    "none": np.ones((B, T), bool),
    "front": np.arange(T) >= np.array([[2], [0], [1], [0]]),
    "behind": np.arange(T) < np.array([[2], [T], [3], [T]]),
    "everywhere": np.arange(T) % 2 == np.array([[0], [1], [2], [3]]),
}


@pytest.fixture(autouse=True)
def without_kernels_too(monkeypatch):
    """Without the CPU extension Keras' layers may be as fast."""
    monkeypatch.setitem(
        fast_layers._FASTER_WITHOUT_KERNELS, BACKEND, (True, True)
    )


def lstm(**options):
    return layers.LSTM(U, **options)


def gru(**options):
    return layers.GRU(U, **options)


def cell(**options):
    return layers.RNN(layers.GRUCell(U), **options)


def stacked(**options):
    return layers.RNN([layers.LSTMCell(3), layers.LSTMCell(U)], **options)


STATES = {lstm: [U, U], gru: [U], cell: [U], stacked: [3, 3, U, U]}


def call_of(make, mask, states, **options):
    """A model of one call, and its inputs: everything that a call may have."""
    sizes = STATES[make] if states else []
    x, given = keras.Input((T, D)), [keras.Input((n,)) for n in sizes]
    inputs, data = [x, *given], [example(B, T, D)]
    data += [example(B, n, seed=n + k) for k, n in enumerate(sizes)]
    named = {}
    if states:
        nested = [given[:2], given[2:]] if make is stacked else given
        named["initial_state"] = nested
    if mask is not None:
        named["mask"] = keras.Input((T,), dtype="bool")
        inputs.append(named["mask"])
        data.append(MASKS[mask])
    model = keras.Model(inputs, make(**options)(x, **named))
    randomize(model)
    return model, data


def both(model, clone, data, **tolerance):
    """Compares outputs of the two, as in `fit` and as in `predict`."""
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-5}
    # Without the kernels Keras' own loop predicts on torch.
    for training in (True, False):
        found, expected = (
            keras.tree.flatten(one(data, training=training))
            for one in (clone, model)
        )
        assert [y.dtype for y in found] == [y.dtype for y in expected]
        close(found, expected, **tolerance)


def assert_fast(model):
    rows = rnn_summary(model)
    assert rows
    assert {row.training for row in rows} <= {"native", "fused"}, rows


@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_every_call(make):
    flags = itertools.product((False, True), repeat=3)
    masks = itertools.cycle((None, *MASKS))
    for k, (every, back, zeros) in enumerate(flags):
        model, data = call_of(
            make,
            next(masks),
            states=k % 3 == 0,
            return_sequences=every,
            go_backwards=back,
            zero_output_for_mask=zeros,
            return_state=every != zeros,
        )
        clone = with_fast_rnn(model)
        assert_fast(clone)
        both(model, clone, data)


@pytest.mark.every_backend
@pytest.mark.parametrize("make", STATES, ids=lambda make: make.__name__)
def test_masked_steps_and_given_states(make):
    """Where Keras' backends differ, the clone gives what its own gives."""
    for back in (False, True):
        model, data = call_of(
            make,
            "front",
            states=True,
            return_sequences=True,
            return_state=True,
            go_backwards=back,
        )
        clone = with_fast_rnn(model)
        assert_fast(clone)
        both(model, clone, data)


def reviews():
    """Padded words in both directions, and a cell of each kind above."""
    return keras.Sequential(
        [
            keras.Input((T,), dtype="int32"),
            layers.Embedding(9, D, mask_zero=True),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            layers.Bidirectional(layers.GRU(U, return_sequences=True)),
            layers.RNN(layers.LSTMCell(U)),
            layers.Dense(1),
        ]
    )


def words():
    x = np.random.default_rng(1).integers(1, 9, (B, T))
    x[0, :2], x[1, 3:], x[2, 2] = 0, 0, 0
    return x


@pytest.fixture
def double():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(
    "steps",
    [1, pytest.param(10, marks=[pytest.mark.full, pytest.mark.every_backend])],
)
def test_steps_in_float64(steps, double):
    """Predictions, gradients and weights stay those of Keras' own."""
    model, x, y = reviews(), words(), example(B, 1)
    randomize(model)
    clone = with_fast_rnn(model)
    assert not clone.compiled
    assert_fast(clone)
    tolerance = {"rtol": DOUBLE, "atol": DOUBLE}
    both(model, clone, x, **tolerance)
    for one in (model, clone):
        one.compile(keras.optimizers.SGD(0.1), "mse")
        one.fit(x, y, B, epochs=steps, verbose=0)
    tolerance = {name: 1e2 * DOUBLE for name in tolerance}
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    close(clone.weights, model.weights, **tolerance)
    assert abs(to_numpy(clone.weights[1]) - 0.5).max() > 0.1


def test_there_and_back_bit_for_bit(tmp_path):
    model, x = reviews(), words()
    randomize(model)
    fast = with_fast_rnn(model)
    assert {"FastLSTM", "FastGRU", "FastRNN"} <= kinds_in(fast)
    assert kinds_in(with_fast_rnn(fast)) == kinds_in(fast)
    fast.save(tmp_path / "fast.keras")
    loaded = keras.saving.load_model(tmp_path / "fast.keras")
    assert kinds_in(loaded) == kinds_in(fast)
    back = to_keras(loaded)
    assert kinds_in(back) == kinds_in(model)
    assert back.get_config() == model.get_config()
    assert not back.compiled
    other = with_fast_rnn(reviews())
    other.set_weights(model.get_weights())
    for one in (back, other):
        for ours, theirs in zip(one.weights, model.weights, strict=True):
            np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
    np.testing.assert_array_equal(*(predictions(m, x) for m in (back, model)))
    both(model, loaded, x)


def test_dropout_drops_the_same():
    model = model_of(layers.LSTM(U, dropout=0.5, seed=3), layers.Dense(2))
    x = example(B, T, D)
    clone = with_fast_rnn(model)
    found, expected = (to_numpy(m(x, training=True)) for m in (clone, model))
    close(found, expected, rtol=1e-5, atol=1e-6)
    assert abs(found - to_numpy(model(x))).max() > 1e-3


def test_states_between_batches():
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(B, T, D)),
            layers.LSTM(U, stateful=True, return_sequences=True),
            layers.GRU(U, stateful=True),
        ]
    )
    randomize(model)
    x = example(B, T, D)
    model(x)
    # In the midst of a sequence: the states come along.
    clone = with_fast_rnn(model)
    for seed in (1, 2):
        both(model, clone, example(B, T, D, seed=seed))
    clone.compile("sgd", "mse")
    clone.fit(x, example(B, U), B, epochs=2, verbose=0)
    clone.layers[0].reset_state()
    assert not to_numpy(clone.layers[0].states[0]).any()


class Holder(layers.Layer):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.inner = layers.LSTM(U, return_sequences=True, name="inner")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)

    def compute_output_shape(self, shape):
        return (*shape[:2], U)


class Derived(layers.LSTM):
    pass


KEPT = {
    "reset_after=False": layers.GRU(U, reset_after=False),
    "activation='tanh'. Received: relu": layers.LSTM(U, activation="relu"),
    "recurrent_activation='sigmoid'": layers.GRU(
        U, recurrent_activation="hard_sigmoid"
    ),
    "Cells of class SimpleRNNCell": layers.SimpleRNN(U),
    "other entries for each gate": layers.LSTM(U, recurrent_dropout=0.1),
    "unrolled loop": layers.LSTM(U, unroll=True),
    "faster in bfloat16": layers.LSTM(U, dtype="mixed_bfloat16"),
    "computes in float16, its cell in float32": layers.RNN(
        layers.LSTMCell(U, dtype="float32"), dtype="mixed_float16"
    ),
    "drop nothing with dropout=1": layers.RNN(layers.LSTMCell(U, dropout=1.0)),
    "of the class Derived": Derived(U),
    "unless a layer of another class": Holder(),
}


@pytest.mark.parametrize("reason", KEPT)
def test_what_stays_keras_own(reason):
    model = model_of(KEPT[reason])
    randomize(model)
    with pytest.warns(UserWarning, match="no layer that it can make faster"):
        clone = with_fast_rnn(model)
    assert kinds_in(clone) == kinds_in(model)
    (row,) = rnn_summary(clone)
    assert (row.training, row.prediction) == ("keras", "keras")
    assert reason in row.reason
    x = example(B, T, D)
    np.testing.assert_array_equal(*(predictions(m, x) for m in (clone, model)))


@pytest.mark.parametrize("value", [True, False])
def test_use_cudnn_is_kept(value):
    """Configs of Keras do not have it."""
    options = {"use_cudnn": value, "return_sequences": True}
    model = model_of(
        *(layers.LSTM(U, **options), layers.GRU(U, **options)), layers.LSTM(U)
    )
    # In a clone of a clone too.
    fast = with_fast_rnn(model)
    for clone in (fast, with_fast_rnn(fast), to_keras(fast)):
        kept = [part.use_cudnn for part in clone.layers[:2]]
        assert kept == [value, value]
        for row in rnn_summary(clone)[:2]:
            assert value == (row.reason == "use_cudnn=True asks for cuDNN.")


def test_the_summary(capsys):
    model = model_of(
        layers.LSTM(U, name="fast", return_sequences=True),
        layers.SimpleRNN(U, name="simple", return_sequences=True),
        layers.Bidirectional(keras_ln.LNLSTM(U, name="normalised")),
    )
    clone = with_fast_rnn(model, verbose=True)
    rows = rnn_summary(clone)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert printed[0].startswith("fast (FastLSTM): ")
    names = ["fast", "simple", "forward_normalised", "backward_normalised"]
    assert [row.layer for row in rows] == names
    assert [row.class_name for row in rows] == [
        "FastLSTM",
        "SimpleRNN",
        *2 * ["LNLSTM"],
    ]
    assert rows[0].training in ("native", "fused")
    assert ("CPU extension:" in rows[0].reason) == (rows[0].training == "fused")
    assert (rows[1].training, rows[2].training) == ("keras", rows[0].training)
    assert "with_fast_rnn replaces it" in rnn_summary(model)[0].reason


def test_what_is_no_built_model_of_layers():
    for convert in (with_fast_rnn, to_keras):
        name = convert.__name__
        with pytest.raises(ValueError, match=f"{name} takes functional and"):
            convert(layers.LSTM(U))
        with pytest.raises(ValueError, match="Build the model first. Rec"):
            convert(keras.Sequential([layers.LSTM(U)]))
    with pytest.raises(ValueError, match="`verbose` must be True .*=.no.$"):
        with_fast_rnn(model_of(layers.LSTM(U)), verbose="no")
    with pytest.raises(ValueError, match="`model` must be a .*: model=3"):
        rnn_summary(3)


if BACKEND == "tensorflow":  # The others' exports hold no compiled op.

    @pytest.mark.every_backend
    def test_an_export_is_of_keras_own_loop(tmp_path):
        import tensorflow as tf

        model = model_of(layers.LSTM(U), layers.Dense(1))
        fast, x = with_fast_rnn(model), example(B, T, D).astype("float32")
        fast.export(tmp_path, verbose=False)
        graph = (tmp_path / "saved_model.pb").read_bytes()
        assert b"_XlaMustCompile" not in graph
        served = tf.saved_model.load(tmp_path)
        close(served.serve(x), model(x), rtol=1e-5)
