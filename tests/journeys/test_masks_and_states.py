"""Masks and states by hand, without training."""

import keras
import numpy as np
from journeys.twins import compare, sentences, to_numpy
from keras.src.backend.common.masking import get_keras_mask


def from_the_masking_guide(layers):
    """Masks by hand, and layers that make, change and read them."""

    class TemporalSplit(keras.layers.Layer):
        def call(self, inputs):
            return keras.ops.split(inputs, 2, axis=1)

        def compute_mask(self, inputs, mask=None):
            if mask is None:
                return None
            return keras.ops.split(mask, 2, axis=1)

    class Skip(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, inputs):
            return inputs * 1.0

    x, _ = sentences(steps=8)
    embedding = keras.layers.Embedding(12, 6, mask_zero=True)
    embedded = embedding(x)
    by_hand = layers.LSTM(4)
    report = {
        "by hand": by_hand(embedded, mask=embedding.compute_mask(x)),
        "alone": by_hand(embedding(x)),
    }
    first, second = TemporalSplit()(embedded)
    layer = layers.GRU(4, return_sequences=True)
    report["first half"] = layer(first)
    report["second half"] = layer(Skip()(second))
    report["mask"] = get_keras_mask(layer(second))
    reversed_ = layers.GRU(4, go_backwards=True, return_sequences=True)
    report["zeros"] = layers.LSTM(
        4, return_sequences=True, zero_output_for_mask=True
    )(embedded)
    report["backwards"] = reversed_(embedded)
    report["mask of states"] = [
        mask is None
        for mask in layers.LSTM(
            4, return_sequences=True, return_state=True
        ).compute_mask(embedded, get_keras_mask(embedded))
    ]
    return report


def test_from_the_masking_guide():
    found = compare(from_the_masking_guide)
    np.testing.assert_array_equal(
        to_numpy(found["by hand"]), to_numpy(found["alone"])
    )


def handed_on(layers):
    """A state of one example for all, and outputs of several layers."""
    x = np.random.default_rng(0).normal(size=(6, 5, 3)).astype("float32")
    inputs = keras.Input((5, 3))
    summary = layers.LSTM(4)(inputs)
    start = [keras.layers.Dense(4)(summary), keras.layers.Dense(4)(summary)]
    first, h, c = layers.LSTM(4, return_sequences=True, return_state=True)(
        inputs, initial_state=start
    )
    second = layers.LSTM(4)(first, initial_state=(h, c))
    model = keras.Model(inputs, [first, second, h, c])
    outputs = model.predict(x, verbose=0)
    return {f"output {k}": value for k, value in enumerate(outputs)}


def test_states_as_lists_and_tuples():
    compare(handed_on)
