"""One-line uses of a layer, each with the shapes and dtypes of its twin.

Of `with_fast_rnn` with its numbers too.
"""

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from twins import FAST, OURS, THEIRS, compare

from keras_ln.layers.rnn import fast

X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype("float32")
STATE = np.zeros((3, 3), "float32")
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
ORTHOGONAL = ("glorot_normal", "orthogonal", "ones")


def model(inputs, outputs, *data):
    return keras.Model(inputs, outputs)(data[0] if len(data) == 1 else [*data])


def sequential(*layers):
    return keras.Sequential([keras.Input((4, 2)), *layers])


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
    "an activation of one's own": lambda k: k.LSTM(
        3, lambda v: keras.ops.tanh(v), "hard_sigmoid"
    )(X),
    # Inputs.
    "float64": lambda k: k.LSTM(3)(X.astype("float64")),
    "no rows": lambda k: k.LayerNormalization()(k.GRU(3)(X[:0])),
    # Masks.
    "mask of floats": lambda k: k.GRU(3)(X, mask=MASK.astype("float32")),
    "mask of rank 3": lambda k: k.LSTM(3)(X, mask=MASK[..., None] > 0),
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
    "a state without a list": lambda k: k.GRU(3)(X, initial_state=STATE),
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
    "TimeDistributed model": lambda k: over_time(
        sequential(k.LSTM(3), k.LayerNormalization())
    ),
    # Cells.
    "a cell": lambda k: (cell := k.LSTMCell(3))(
        X[:, 0], states=cell.get_initial_state(batch_size=3), training=True
    )[0],
    "a cell, its state alone": lambda k: k.GRUCell(3)(X[:, 0], STATE)[0],
}


@pytest.mark.parametrize("layers", [OURS, FAST], ids=["ours", "fast"])
@pytest.mark.parametrize("name", USES)
def test_one_line(name, layers, monkeypatch):
    monkeypatch.setitem(fast._FASTER_WITHOUT_KERNELS, BACKEND, (True, True))
    compare(lambda some: {name: USES[name](some)}, layers, THEIRS)
