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
