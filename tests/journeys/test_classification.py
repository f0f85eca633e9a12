"""Sentences and their classes, with padding: reviews, tags, tickets."""

import functools
import types

import keras
import numpy as np
import pytest
from descriptors import SEQUENCE_LAYERS
from journeys.twins import BACKEND, compare, sentences, to_numpy
from keras.src.backend.common.masking import get_keras_mask

pytestmark = [pytest.mark.full, pytest.mark.every_backend]

# Sentences have nine words.
RECURRENT = {
    row.name: (
        functools.partial(row.layer_class, max_steps=9)
        if row.batch_statistics
        else row.layer_class,
        row.twin,
    )
    for row in SEQUENCE_LAYERS
    # TensorFlow and JAX take minutes to compile all of them.
    if BACKEND == "torch" or row.name == "LNLSTM"
}


def reviews(layers):
    """The code example bidirectional_lstm_imdb."""
    x, y = sentences(layers.rows, padding=layers.padding)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(12, 8, mask_zero=True),
            keras.layers.Bidirectional(layers.RNN(4, return_sequences=True)),
            keras.layers.Bidirectional(layers.RNN(4)),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.02), "binary_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(
        x,
        y,
        8,
        epochs=5,
        validation_data=(x[:8], y[:8]),
        class_weight={0: 1.0, 1: 1.5},
        verbose=0,
    ).history
    return {
        "loss": history["loss"],
        "validation": history["val_loss"],
        "accuracy": history["val_accuracy"],
        "predictions": model.predict(x, 8, verbose=0),
        "evaluation": model.evaluate(x, y, 8, verbose=0),
        "one shorter sentence": model(x[:1, :4]),
    }


@pytest.mark.parametrize(
    "name, padding",
    [*((name, "post") for name in RECURRENT), ("LNLSTM", "pre")],
)
def test_reviews(name, padding):
    # A ragged last batch, of six, takes XLA twice as long.
    rows = 22 if (name, padding) == ("LNLSTM", "post") else 24
    ours, theirs = (
        types.SimpleNamespace(RNN=cls, padding=padding, rows=rows)
        for cls in RECURRENT[name]
    )
    compare(reviews, ours, theirs)


def tagger(layers):
    """A tag for each word: masks through TimeDistributed, sample weights."""
    x, _ = sentences()
    words = keras.Input((9,), dtype="int32")
    embedded = keras.layers.Embedding(12, 6, mask_zero=True)(words)
    hidden = keras.layers.Bidirectional(
        layers.LSTM(4, return_sequences=True, dropout=0.1)
    )(embedded)
    hidden = layers.LayerNormalization()(hidden)
    hidden = layers.GRU(4, return_sequences=True)(hidden)
    tags = keras.layers.TimeDistributed(
        keras.layers.Dense(3, activation="softmax")
    )(hidden)
    model = keras.Model(words, tags)
    model.compile(
        keras.optimizers.Adam(0.02),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=["accuracy"],
    )
    history = model.fit(
        x,
        x % 3,
        8,
        epochs=5,
        sample_weight=np.where(x == 1, 2.0, 1.0).astype("float32"),
        verbose=0,
    ).history
    called = keras.Model(words, [embedded, hidden, tags])(x)
    masks = [get_keras_mask(tensor) for tensor in called]
    return {
        "loss": history["loss"],
        "accuracy": history["accuracy"],
        "predictions": model.predict(x, verbose=0),
        **{f"mask {k}": mask for k, mask in enumerate(masks)},
    }


def test_tagger():
    found = compare(tagger)
    x, _ = sentences()
    for name in ("mask 0", "mask 1", "mask 2"):
        np.testing.assert_array_equal(to_numpy(found[name]), x != 0)


def questions(layers):
    """One layer for two inputs, and its weights counted once."""
    first, y = sentences(seed=1)
    second, _ = sentences(seed=2)
    shared = keras.Sequential(
        [
            keras.layers.Embedding(12, 6, mask_zero=True),
            layers.LSTM(5, recurrent_dropout=0.1),
        ]
    )
    inputs = [keras.Input((9,)), keras.Input((9,))]
    merged = keras.layers.concatenate([shared(one) for one in inputs])
    model = keras.Model(
        inputs, keras.layers.Dense(1, activation="sigmoid")(merged)
    )
    model.compile(keras.optimizers.Adam(0.02), "binary_crossentropy")
    history = model.fit([first, second], y, 8, epochs=6, verbose=0).history
    a, b = (to_numpy(shared(one)) for one in (first, second))
    return {
        "loss": history["loss"],
        "predictions": model.predict([first, second], verbose=0),
        "difference": a - b,
    }


def test_questions():
    compare(questions)


def documents(layers):
    """Words to sentences to a document: TimeDistributed over a layer."""
    words, _ = sentences(rows=40, steps=5)
    x = words.reshape(10, 4, 5)
    x[::2, 3] = 0  # documents of three sentences
    y = (x[:, 0, 0] == 1).astype("float32")
    inputs = keras.Input((4, 5), dtype="int32")
    embedded = keras.layers.Embedding(12, 6)(inputs)
    vectors = keras.layers.TimeDistributed(layers.GRU(4))(embedded)
    masked = keras.layers.Masking()(vectors)
    model = keras.Model(inputs, keras.layers.Dense(1)(layers.LSTM(4)(masked)))
    model.compile(
        keras.optimizers.Adam(0.02),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    history = model.fit(x, y, 4, epochs=6, verbose=0).history
    return {
        "loss": history["loss"],
        "predictions": model.predict(x, verbose=0),
    }


def test_documents():
    compare(documents)


def transformer(layers):
    """The block of text_classification_with_transformer, causal too."""
    x, y = sentences()
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(12, 8, mask_zero=True)(inputs)
    for causal in (False, True):
        attended = keras.layers.MultiHeadAttention(2, 4)(
            hidden, hidden, use_causal_mask=causal
        )
        hidden = layers.LayerNormalization(epsilon=1e-6)(
            keras.layers.add([hidden, attended])
        )
        wide = keras.layers.Dense(8)(layers.Dense(16, "relu")(hidden))
        hidden = layers.LayerNormalization(epsilon=1e-6)(
            keras.layers.add([hidden, wide])
        )
    hidden = layers.BatchNormalization()(hidden)
    pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(
        inputs, keras.layers.Dense(2, activation="softmax")(pooled)
    )
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy"
    )
    history = model.fit(x, y, 8, epochs=5, verbose=0).history
    return {
        "loss": history["loss"],
        "predictions": model.predict(x, verbose=0),
        "moving": model.layers[-3].moving_variance.numpy(),
    }


def test_transformer():
    compare(transformer)
