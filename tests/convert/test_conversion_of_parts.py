"""with_layer_norm: own classes and functions, and shared layers.

Letters: B batch, T time, D input features, U units.
"""

import keras
import pytest
from arrays import example
from converted import B, D, T, U, assert_same, message, model_of, randomize

from keras_ln import with_fast_rnn, with_layer_norm

layers = keras.layers


def squared(x):
    return keras.ops.tanh(x) ** 2


def of_frames(*frame_parts):
    """A model of D features within TimeDistributed."""
    frame = keras.Sequential([keras.Input((D,)), *frame_parts], name="frame")
    return model_of(layers.TimeDistributed(frame), layers.LSTM(U))


class Dense(layers.Dense):
    """A class that nobody has registered, of a name that Keras has."""

    def call(self, x):
        return 10.0 * super().call(x)


class Block(layers.Layer):
    """It says itself what it holds."""

    def __init__(self, parts, **arguments):
        super().__init__(**arguments)
        self.parts = parts

    def build(self, shape):
        for part in self.parts:
            if not part.built:
                part.build(shape)

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def get_config(self):
        return {
            "name": self.name,
            "parts": keras.saving.serialize_keras_object(self.parts),
        }

    @classmethod
    def from_config(cls, config):
        parts = keras.saving.deserialize_keras_object(config.pop("parts"))
        return cls(parts, **config)


class Doubled(layers.Layer):
    """Another class that nobody has registered."""

    def call(self, x):
        return 2.0 * x


def test_classes_of_one_name_inside_wrappers():
    for order in (1, -1):
        model = of_frames(*(layers.Dense(D), Dense(D))[::order])
        randomize(model)
        assert_same(model, with_layer_norm(model, ()), example(B, T, D))


def test_classes_of_one_name_inside_a_layer():
    parts = [Doubled(), Dense(D), layers.Dense(D)]
    model = model_of(Block(parts, name="block"), layers.LSTM(U))
    randomize(model)
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))
    other = type("Dense", (layers.Dense,), {})
    model = model_of(Block([Dense(D), other(D)], name="block"))
    found = message(model)
    assert "cannot tell two classes 'Dense' apart" in found
    assert "Received: 'block' with both inside" in found


def shared_cell(x):
    cell = layers.LSTMCell(D)
    return layers.RNN(cell)(layers.RNN(cell, return_sequences=True)(x))


def shared_dense(x):
    dense = layers.Dense(D)
    return layers.LSTM(U)(dense(layers.TimeDistributed(dense)(x)))


def cell_twice(x):
    cell = layers.LSTMCell(D)
    return layers.RNN([cell, cell])(x)


def shared_in_a_frame(x):
    """In a model within a model within a wrapper."""
    dense = layers.Dense(D)
    within = keras.Sequential([keras.Input((D,)), dense])
    frame = keras.Sequential([keras.Input((D,)), within, dense])
    return layers.LSTM(U)(layers.TimeDistributed(frame)(x))


@pytest.mark.parametrize(
    "call", [shared_cell, shared_dense, cell_twice, shared_in_a_frame]
)
def test_what_wrappers_share(call):
    inputs = keras.Input((T, D))
    model = keras.Model(inputs, call(inputs))
    randomize(model)
    clone = with_layer_norm(model, ())
    assert clone.count_params() == model.count_params()
    assert_same(model, clone, example(B, T, D))


def test_what_cannot_stay_shared():
    inputs = keras.Input((T, D))
    dense = layers.Dense(D, name="mine")
    block = Block([dense], name="block")
    found = message(keras.Model(inputs, block(dense(inputs))))
    assert "cannot keep 'mine' shared" in found
    assert "one for 'mine' and one for 'block'" in found
    # Keras makes the layers in it again.
    both = layers.Bidirectional(layers.LSTM(U, name="mine"), name="both")
    y = both(inputs), both.forward_layer(inputs)
    found = message(keras.Model(inputs, y), copy_weights=False)
    assert f"cannot keep '{both.forward_layer.name}' shared" in found
    # A cell of a layer that is replaced.
    lstm = layers.LSTM(U, name="mine")
    y = lstm(inputs), layers.RNN(lstm.cell)(inputs)
    assert "cannot keep 'lstm_cell" in message(keras.Model(inputs, y))
    # Without weights nothing trains apart.
    doubled = Doubled()
    block = Block([doubled])
    y = layers.LSTM(U)(block(doubled(inputs)))
    model = keras.Model(inputs, y)
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))


def test_own_functions():
    """They need not be registered."""
    model = model_of(
        layers.Lambda(lambda t: keras.ops.tanh(t)),
        layers.TimeDistributed(
            layers.Lambda(lambda t: keras.ops.sin(t), output_shape=(D,))
        ),
        layers.LSTM(U, activation=squared, return_sequences=True),
        layers.RNN(
            layers.LSTMCell(U, recurrent_activation=lambda t: squared(t)),
            return_sequences=True,
        ),
        layers.SimpleRNN(U, activation=squared),
        layers.Dense(U, activation=lambda t: t**2),
    )
    randomize(model)
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))
    assert with_layer_norm(model).layers[2].activation is squared


def test_an_activation_with_weights_is_copied():
    model = model_of(
        layers.LSTM(U, return_sequences=True),
        layers.Dense(3, activation=layers.PReLU()),
    )
    randomize(model)
    own = {id(variable) for variable in model.variables}
    for convert in (lambda model: with_layer_norm(model, []), with_fast_rnn):
        clone = convert(model)
        assert_same(model, clone, example(B, T, D))
        assert not own & {id(variable) for variable in clone.variables}
