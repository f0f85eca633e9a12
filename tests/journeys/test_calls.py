"""One-line uses of a layer, each with the shapes and dtypes of its twin."""

import keras
import numpy as np
import pytest
from journeys.twins import compare

X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype("float32")
STATE = np.zeros((3, 3), "float32")
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
ORTHOGONAL = ("glorot_normal", "orthogonal", "ones")


def model(inputs, outputs, *data):
    return keras.Model(inputs, outputs)(data[0] if len(data) == 1 else [*data])


def sequential(*layers):
    return keras.Sequential([keras.Input((4, 2)), *layers])


def functional(use):
    """A model of what `use` makes of symbolic sequences."""
    inputs = keras.Input((4, 2))
    return model(inputs, use(inputs), X)


def built(layer, **shapes):
    layer.build(**shapes)
    return layer(X)


def after_reset(layer):
    layer.reset_state()
    layer(X)
    layer.reset_state()
    return layer(X)


def both_ways(layer, **options):
    return keras.layers.Bidirectional(layer, **options)


def over_time(layer):
    return keras.layers.TimeDistributed(layer)(np.stack([X, X], axis=1))


def attributes(layer, *names):
    layer(X)
    return [float(getattr(layer, name)) for name in names]


USES = {
    # Arguments by position, of other types, and those of older files.
    "positional LSTM": lambda k: k.LSTM(
        3, "relu", "hard_sigmoid", True, *ORTHOGONAL, False
    )(X),
    "positional GRU": lambda k: k.GRU(
        3, "relu", "hard_sigmoid", True, *ORTHOGONAL
    )(X),
    "units of NumPy": lambda k: k.LSTM(np.int64(3))(X),
    "rms_scaling": lambda k: k.LayerNormalization(rms_scaling=False)(X),
    "an activation of one's own": lambda k: k.LSTM(
        3, lambda v: keras.ops.tanh(v), "hard_sigmoid"
    )(X),
    "an activation layer": lambda k: k.LSTM(
        3, keras.layers.LeakyReLU(), keras.activations.silu
    )(X),
    "no activations": lambda k: k.GRU(3, None, None)(X),
    "activity": lambda k: len(
        sequential(k.LSTM(3, activity_regularizer="l2")).losses
    ),
    "a policy": lambda k: k.LSTM(3, dtype=keras.DTypePolicy("mixed_bfloat16"))(
        X
    ),
    # Inputs.
    "float64": lambda k: k.LSTM(3)(X.astype("float64")),
    "integers to norms": lambda k: k.BatchNormalization()(
        k.LayerNormalization()((9 * X).astype("int32"))
    ),
    "no rows": lambda k: k.LayerNormalization()(k.GRU(3)(X[:0])),
    "one feature": lambda k: k.LayerNormalization()(k.LSTM(3)(X[..., :1])),
    "by name": lambda k: k.LSTM(3)(sequences=X),
    # Masks.
    "mask of integers": lambda k: k.LSTM(3)(X, mask=MASK),
    "mask of floats": lambda k: k.GRU(3)(X, mask=MASK.astype("float32")),
    "mask of rank 3": lambda k: k.LSTM(3)(X, mask=MASK[..., None] > 0),
    "mask unrolled": lambda k: k.LSTM(3, unroll=True)(X, mask=MASK > 0),
    "mask as an input": lambda k: model(
        inputs := [keras.Input((4, 2)), keras.Input((4,), dtype="bool")],
        k.LSTM(3)(inputs[0], mask=inputs[1]),
        X,
        MASK > 0,
    ),
    "mask to Keras' RNN": lambda k: keras.layers.RNN(k.GRUCell(3))(
        X, mask=MASK > 0
    ),
    # Initial states.
    "float64 states": lambda k: k.LSTM(3)(
        X, initial_state=[STATE.astype("float64")] * 2
    ),
    "states in a tuple": lambda k: k.LSTM(3)(X, initial_state=(STATE, STATE)),
    "a state without a list": lambda k: k.GRU(3)(X, initial_state=STATE),
    "a state in a list": lambda k: k.GRU(3)(X, initial_state=[STATE]),
    "integer states": lambda k: k.GRU(3)(
        X, initial_state=STATE.astype("int32")
    ),
    "a variable": lambda k: k.GRU(3)(X, initial_state=keras.Variable(STATE)),
    "four states": lambda k: both_ways(k.LSTM(3))(X, initial_state=[STATE] * 4),
    # Shapes, names and weights.
    "built": lambda k: built(k.LSTM(3), sequences_shape=(None, None, 2)),
    "attributes": lambda k: attributes(
        k.LSTM(3, dropout=0.5),
        *("units", "use_bias", "dropout", "recurrent_dropout"),
        *("unit_forget_bias", "return_sequences", "return_state", "stateful"),
        *("go_backwards", "unroll", "zero_output_for_mask", "trainable"),
        *("supports_masking", "supports_jit"),
    ),
    # In models.
    "training in a model": lambda k: functional(
        lambda x: k.LSTM(3, dropout=0.5)(x, training=True)
    ),
    # In Keras' wrappers.
    "Bidirectional of two": lambda k: both_ways(
        k.LSTM(3), backward_layer=k.GRU(3, go_backwards=True)
    )(X),
    "Bidirectional with states": lambda k: both_ways(
        k.LSTM(3, return_state=True)
    )(X)[3],
    "Bidirectional kept": lambda k: after_reset(
        both_ways(k.GRU(3, stateful=True))
    ),
    "TimeDistributed": lambda k: over_time(k.LSTM(3)),
    "TimeDistributed norm": lambda k: over_time(k.LayerNormalization()),
    "TimeDistributed model": lambda k: over_time(
        sequential(k.LSTM(3), k.LayerNormalization())
    ),
    "kept": lambda k: after_reset(k.LSTM(3, stateful=True)),
    "kept by Keras' RNN": lambda k: after_reset(
        keras.layers.RNN(k.LSTMCell(3), stateful=True)
    ),
    # Cells.
    "a cell": lambda k: (cell := k.LSTMCell(3))(
        X[:, 0], states=cell.get_initial_state(batch_size=3), training=True
    )[0],
    "a cell, its state in a list": lambda k: k.GRUCell(3)(X[:, 0], [STATE])[0],
    "a cell, its state alone": lambda k: k.GRUCell(3)(X[:, 0], STATE)[0],
    "stacked": lambda k: keras.layers.RNN(
        keras.layers.StackedRNNCells([k.LSTMCell(3), k.GRUCell(2)])
    )(X),
}


@pytest.mark.parametrize("name", USES)
def test_one_line(name):
    compare(lambda layers: {name: USES[name](layers)})
