"""Frames to letters: the connectionist temporal classification loss."""

import keras
import numpy as np
import pytest
from journeys.twins import compare

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def frames(rows=12, steps=14, letters=4):
    """Noisy spectra, three letters each, 0 is the blank and the padding."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1, letters + 1, size=(rows, 3))
    labels[::4, 2] = 0
    x = rng.normal(scale=0.1, size=(rows, steps, letters + 1))
    for row, label in enumerate(labels):
        for place, letter in enumerate(label):
            x[row, 1 + 4 * place : 4 + 4 * place, letter] += 1.0
    return x.astype("float32"), labels.astype("int32")


def recogniser(layers, letters=4):
    """Convolution, two recurrent layers, letters: ctc_asr in small."""
    inputs = keras.Input((14, letters + 1))
    x = keras.layers.Conv1D(6, 3, padding="same", use_bias=False)(inputs)
    x = keras.layers.ReLU()(layers.BatchNormalization()(x))
    for _ in range(2):
        x = keras.layers.Bidirectional(
            layers.GRU(4, return_sequences=True, reset_after=True)
        )(x)
        x = keras.layers.Dropout(0.1)(x)
    return inputs, x


def speech(layers):
    """A loss of `compile`."""
    x, labels = frames()
    inputs, hidden = recogniser(layers)
    model = keras.Model(inputs, layers.Dense(5)(hidden))
    model.compile(keras.optimizers.Adam(0.02), keras.losses.CTC())
    history = model.fit(x, labels, 4, epochs=6, verbose=0).history
    logits = model.predict(x, verbose=0)
    decoded, scores = keras.ops.ctc_decode(
        logits, np.full(12, 14), strategy="greedy", mask_index=0
    )
    return {"loss": history["loss"], "logits": logits, "scores": scores}


def test_speech():
    compare(speech)


def captcha(layers):
    """A layer that adds the loss: captcha_ocr, with `keras.ops.ctc_loss`."""

    class CTCLayer(keras.layers.Layer):
        def call(self, labels, logits):
            rows, steps = keras.ops.shape(logits)[:2]
            loss = keras.ops.ctc_loss(
                labels,
                logits,
                keras.ops.sum(keras.ops.cast(labels != 0, "int32"), axis=1),
                keras.ops.ones((rows,), "int32") * steps,
                mask_index=0,
            )
            self.add_loss(keras.ops.mean(loss))
            return logits

    x, labels = frames()
    inputs = keras.Input((14, 5), name="image")
    truth = keras.Input((3,), dtype="int32", name="label")
    hidden = keras.layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, dropout=0.1)
    )(inputs)
    hidden = layers.LayerNormalization()(hidden)
    logits = keras.layers.Dense(5, name="logits")(hidden)
    model = keras.Model([inputs, truth], CTCLayer()(truth, logits))
    model.compile(keras.optimizers.Adam(0.03))
    history = model.fit(
        {"image": x, "label": labels}, batch_size=4, epochs=6, verbose=0
    ).history
    prediction = keras.Model(model.input[0], model.get_layer("logits").output)
    return {
        "loss": history["loss"],
        "predictions": prediction.predict(x, verbose=0),
    }


def test_captcha():
    compare(captcha)
