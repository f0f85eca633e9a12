"""to_keras takes layers of ours as layers of Keras, or refuses them by name.

The way there and back is in test_fast_rnn.py.
"""

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from converted import B, D, T, U, kinds_in, model_of, predictions, randomize

import keras_ln
from keras_ln import to_keras, with_fast_rnn

layers = keras.layers


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


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: model_of(keras_ln.LNLSTM(U, name="mine")), "normalize="),
        (
            lambda: model_of(
                keras_ln.LNLSTM(U, normalize=(), cell_zoneout=0.1, name="mine")
            ),
            "cell_zoneout=0.1",
        ),
        (
            lambda: model_of(
                keras_ln.LNGRU(
                    U,
                    normalize=(),
                    recurrent_activation="relu",
                    name="mine",
                )
            ),
            "needs f(-z) = 1 - f(z) for the recurrent_activation",
        ),
        (
            lambda: model_of(
                keras_ln.LNGRU(
                    U, normalize=(), kernel_constraint="non_neg", name="mine"
                )
            ),
            "needs f(-w) = -f(w) for the kernel_constraint",
        ),
        (lambda: model_of(keras_ln.LNSimpleRNN(U, name="mine")), "no such"),
        (lambda: model_of(keras_ln.WNLSTM(U, name="mine")), "no such layer"),
        (lambda: model_of(keras_ln.LayerNormalization(name="mine")), "no such"),
        (reset, "called with `reset`"),
        (lambda: model_of(Ours()), "inside of a layer of another class"),
        (function, "functions of keras_ln.ops"),
    ],
)
def test_to_keras_refuses_by_name(make, expected):
    with pytest.raises(ValueError, match="to_keras cannot replace") as raised:
        to_keras(make())
    assert expected in str(raised.value)
    if make is not function:
        assert "'mine'" in str(raised.value)
