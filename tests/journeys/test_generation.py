"""Text and series written step by step."""

import keras
import numpy as np
import pytest
from journeys.twins import BACKEND, compare, same, to_numpy, waves

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def letters(layers):
    """Trained on windows, run with batches of one and a kept state."""
    text = np.tile([1, 2, 3, 1, 4, 2], 12)
    x = np.stack([text[k : k + 8] for k in range(60)])
    y = np.stack([text[k + 1 : k + 9] for k in range(60)])

    def build(stateful, **shape):
        return keras.Sequential(
            [
                keras.Input(dtype="int32", **shape),
                keras.layers.Embedding(5, 6),
                layers.LSTM(8, return_sequences=True, stateful=stateful),
                layers.LayerNormalization(),
                layers.GRU(8, return_sequences=True, stateful=stateful),
                keras.layers.Dense(5),
            ]
        )

    model = build(False, shape=(None,))
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    history = model.fit(x, y, 16, epochs=4, verbose=0).history

    writer = build(True, batch_shape=(1, 1))
    writer.set_weights(model.get_weights())
    ways = [writer]
    if BACKEND != "jax":  # where Keras 3.15 keeps no states after `predict`
        ways.append(lambda letter: writer.predict(letter, verbose=0))
    for write in ways:
        written = [to_numpy(write(letter.reshape(1, 1))) for letter in x[0]]
        same(np.concatenate(written, axis=1), model(x[:1]))
        for layer in writer.layers:
            if hasattr(layer, "reset_state"):
                layer.reset_state()
    rng = np.random.default_rng(0)
    letter, said = 1, []
    for _ in range(5):
        logits = to_numpy(writer(np.array([[letter]])))[0, 0].astype("float64")
        odds = np.exp(logits / 0.5)
        letter = int(rng.choice(5, p=odds / odds.sum()))
        said.append(letter)
    return {"loss": history["loss"], "said": said, "written": written}


def test_letters():
    compare(letters)


def multi_step(layers):
    """Feeds its own predictions back, as TensorFlow's tutorial does."""

    class FeedBack(keras.Model):
        def __init__(self, steps):
            super().__init__()
            self.steps = steps
            self.cell = layers.LSTMCell(6)
            self.rnn = keras.layers.RNN(self.cell, return_state=True)
            self.dense = keras.layers.Dense(2)

        def call(self, inputs, training=None):
            x, *states = self.rnn(inputs)
            predictions = [self.dense(x)]
            for _ in range(1, self.steps):
                x, states = self.cell(
                    predictions[-1], states=states, training=training
                )
                predictions.append(self.dense(x))
            return keras.ops.stack(predictions, axis=1)

    x, _ = waves(steps=12)
    model = FeedBack(3)
    model.compile(keras.optimizers.Adam(0.02), "mse")
    history = model.fit(x[:, :9], x[:, 9:], 8, epochs=5, verbose=0).history
    return {
        "loss": history["loss"],
        "predictions": model.predict(x[:, :9], verbose=0),
    }


def test_multi_step():
    compare(multi_step)


def nested(layers):
    """The guide's nested structures: a cell of the user around one of ours."""

    @keras.saving.register_keras_serializable("journeys")
    class Residual(keras.layers.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.inner = layers.GRUCell(units)
            self.state_size = self.output_size = units

        def build(self, input_shape):
            self.inner.build(input_shape)

        def call(self, inputs, states, training=None):
            output, states = self.inner(inputs, states, training=training)
            return output + inputs, states

        def get_initial_state(self, batch_size=None):
            return self.inner.get_initial_state(batch_size)

    x, y = waves(features=3)
    model = keras.Sequential(
        [
            keras.Input((12, 3)),
            keras.layers.RNN(Residual(3), return_sequences=True),
            keras.layers.RNN(Residual(3), go_backwards=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "mse")
    history = model.fit(x, y, 8, epochs=5, verbose=0).history
    return {"loss": history["loss"], "predictions": model.predict(x, 8)}


def test_nested():
    compare(nested)
