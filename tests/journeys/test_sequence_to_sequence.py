"""Encoders and decoders: states handed on, attention, inference models."""

import keras
import numpy as np
import pytest
from journeys.twins import compare, same, sentences

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def translation(layers, folder=None):
    """The code example lstm_seq2seq, its inference models built from a file."""
    rng = np.random.default_rng(0)
    letters = rng.integers(1, 6, size=(22, 5))
    source = np.eye(6, dtype="float32")[letters]
    # Shifted by one, after a start sign.
    target = np.eye(6, dtype="float32")[letters[:, ::-1]]
    given = np.concatenate([np.zeros_like(target[:, :1]), target], axis=1)[
        :, :-1
    ]
    given[:, 0, 0] = 1.0

    encoder_inputs = keras.Input((None, 6))
    _, h, c = layers.LSTM(8, return_state=True, name="encoder")(encoder_inputs)
    decoder_inputs = keras.Input((None, 6))
    decoder = layers.LSTM(
        8, return_sequences=True, return_state=True, name="decoder"
    )
    hidden, _, _ = decoder(decoder_inputs, initial_state=[h, c])
    dense = keras.layers.Dense(6, activation="softmax", name="dense")
    model = keras.Model([encoder_inputs, decoder_inputs], dense(hidden))
    model.compile(keras.optimizers.Adam(0.02), "categorical_crossentropy")
    history = model.fit(
        [source, given],
        target,
        8,
        epochs=6,
        validation_split=0.2,
        verbose=0,
    ).history

    path = f"{folder}/{layers.LSTM.__name__}.keras"
    model.save(path)
    loaded = keras.saving.load_model(path)
    encoder_inputs = loaded.input[0]
    _, h, c = loaded.get_layer("encoder").output
    encoder = keras.Model(encoder_inputs, [h, c])
    decoder_inputs = loaded.input[1]
    states = [keras.Input((8,), name="h"), keras.Input((8,), name="c")]
    hidden, *new_states = loaded.get_layer("decoder")(
        decoder_inputs, initial_state=states
    )
    probabilities = loaded.get_layer("dense")(hidden)
    decoder = keras.Model(
        [decoder_inputs, *states], [probabilities, *new_states]
    )

    # Fed with what it should say, step by step, it says what it learnt.
    carried = encoder.predict(source[:3], verbose=0)
    steps = []
    for step in range(5):
        out, *carried = decoder.predict(
            [given[:3, step : step + 1], *carried], verbose=0
        )
        steps.append(out)
    same(np.concatenate(steps, axis=1), model([source[:3], given[:3]]))
    return {"loss": history["loss"], "steps": steps, "states": carried}


def test_translation(tmp_path):
    compare(lambda layers: translation(layers, tmp_path))


def attention(layers):
    """An encoder of both directions, a decoder that attends to it."""
    source, _ = sentences(seed=1)
    target, _ = sentences(steps=7, seed=2)
    given = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=11)
    words, said = keras.Input((None,)), keras.Input((None,))
    encoded, forward, backward = keras.layers.Bidirectional(
        layers.GRU(3, return_sequences=True, return_state=True)
    )(keras.layers.Embedding(12, 6, mask_zero=True)(words))
    state = keras.layers.concatenate([forward, backward])
    hidden = layers.GRU(6, return_sequences=True)(
        keras.layers.Embedding(12, 6, mask_zero=True)(said),
        initial_state=state,
    )
    context = keras.layers.AdditiveAttention()([hidden, encoded])
    hidden = layers.LayerNormalization()(keras.layers.add([hidden, context]))
    logits = keras.layers.Dense(12)(hidden)
    model = keras.Model([words, said], logits)

    def masked_loss(y_true, y_pred):
        loss = keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        mask = keras.ops.cast(y_true != 0, loss.dtype)
        return keras.ops.sum(loss * mask) / keras.ops.sum(mask)

    model.compile(keras.optimizers.Adam(0.02, clipnorm=1.0), masked_loss)
    history = model.fit([source, given], target, 8, epochs=5, verbose=0).history
    return {
        "loss": history["loss"],
        "predictions": model.predict([source, given], verbose=0),
    }


def test_attention():
    compare(attention)
