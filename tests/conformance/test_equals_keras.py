"""Without normalisation our layers are Keras' own, so baselines are fair.

`WNLSTM` and `LNGRU` are compared in tests/conformance/test_keras_cases.py.
"""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, B, D, T, U, randomize
from recurrence import MASKS
from tolerances import FLOAT32_VALUES

import keras_ln

X = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
COTANGENT = np.random.default_rng(2).normal(size=(B, T, U)).astype("float32")


@pytest.mark.parametrize("name", ["LNLSTM", "BNLSTM"])
def test_lstm(name):
    """The same weights in the same order, the same values and gradients.

    Keras' float32 loops on JAX and torch set the precision.
    """
    theirs = keras.layers.LSTM(U, return_sequences=True, use_cudnn=False)
    theirs.build(X.shape)
    randomize(theirs)
    layer = BY_NAME[name].make(normalize=(), return_sequences=True)
    layer.build(X.shape)
    assert [w.name for w in layer.weights] == [w.name for w in theirs.weights]
    layer.set_weights(theirs.get_weights())
    states = [COTANGENT[:, 0], COTANGENT[:, 1]]
    for mask in (None, MASKS["right"]):
        ours, expected = (
            value_and_gradients(
                one, X, [COTANGENT], states=states, mask=mask, training=True
            )
            for one in (layer, theirs)
        )
        close(ours.outputs[0], expected.outputs[0], **FLOAT32_VALUES)
        close(ours.gradients, expected.gradients, **FLOAT32_VALUES)


def test_fresh_weights_are_those_of_keras():
    """From the same seed: initialisers, forget bias and all."""
    found = []
    for cls, options in (
        (keras.layers.LSTM, {}),
        (keras_ln.LNLSTM, {"normalize": ()}),
    ):
        keras.utils.set_random_seed(5)
        layer = cls(U, **options)
        layer.build(X.shape)
        found.append(layer.get_weights())
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
