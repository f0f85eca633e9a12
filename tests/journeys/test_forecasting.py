"""Time series: batches of several lengths, state between batches."""

import keras
import numpy as np
import pytest
from journeys.twins import BACKEND, compare, same, to_numpy, waves

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


class Lengths(keras.utils.PyDataset):
    """A batch of each length, as users bucket their series."""

    def __init__(self, lengths, **kwargs):
        super().__init__(**kwargs)
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return waves(rows=6, steps=self.lengths[index], seed=index)


def buckets(layers):
    """Batches of several lengths, and of length 1, in one model."""
    model = keras.Sequential(
        [
            keras.Input((None, 2)),
            layers.LayerNormalization(),
            layers.GRU(5, return_sequences=True, dropout=0.1),
            layers.BatchNormalization(),
            layers.LSTM(5),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.03), "mae", metrics=["mse"])
    data = Lengths([5, 8, 5, 1, 8])
    history = model.fit(data, epochs=8, verbose=0).history
    return {
        "loss": history["loss"],
        "evaluation": model.evaluate(data, verbose=0),
        **{
            f"{steps} steps": model(waves(rows=3, steps=steps)[0])
            for steps in (1, 5, 8)
        },
    }


def test_buckets():
    compare(buckets)


def across_batches(layers):
    """Long series in pieces: the guide to RNNs, stateful and by hand."""
    x, _ = waves(rows=4, steps=18)
    pieces = np.split(x, 3, axis=1)
    whole = layers.LSTM(3, return_sequences=True)
    expected = to_numpy(whole(x))
    layer = layers.LSTM(3, stateful=True, return_sequences=True)
    layer.build(pieces[0].shape)
    layer.set_weights(whole.get_weights())
    found = [to_numpy(layer(piece)) for piece in pieces]
    same(np.concatenate(found, axis=1), expected)
    report = {"kept": [to_numpy(state).copy() for state in layer.states]}
    # "To reuse the state of an RNN layer": another layer starts from it.
    report["from states"] = layers.LSTM(3)(
        pieces[0], initial_state=layer.states
    )
    layer.reset_state()
    same(layer(pieces[0]), found[0])

    states = None
    carrying = layers.LSTM(3, return_sequences=True, return_state=True)
    carrying.build(pieces[0].shape)
    carrying.set_weights(whole.get_weights())
    for piece, before in zip(pieces, found, strict=True):
        output, *states = carrying(piece, initial_state=states)
        same(output, before)

    model = keras.Sequential(
        [
            keras.Input((6, 2), batch_size=4),
            layers.GRU(3, stateful=True, return_sequences=True),
            keras.layers.Dense(2),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "mse")
    losses = []
    for _ in range(5):
        total = 0.0
        for piece in pieces:
            total += float(model.train_on_batch(piece, piece[..., ::-1]))
        model.layers[0].reset_state()
        losses.append(total)
    report["loss"] = losses
    report["predictions"] = model.predict(pieces[0], 4, verbose=0)
    return report


def test_across_batches():
    # Keras 3.15 overwrites the state that torch wants for the gradient.
    fails = "modified by an inplace operation" if BACKEND == "torch" else None
    compare(across_batches, twin_fails=fails)
