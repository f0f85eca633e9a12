"""Without normalisation our layers are Keras' own, so baselines are fair."""

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import B, D, T, U, named_weights, randomize
from recurrence import MASKS
from reference.ln_gru import keras_gru
from tolerances import FLOAT32_VALUES

import keras_ln

X = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
COTANGENT = np.random.default_rng(2).normal(size=(B, T, U)).astype("float32")


def plain_lstms():
    """Layers that claim to be keras.layers.LSTM."""
    common = {"return_sequences": True}
    return {
        "LNLSTM": keras_ln.LNLSTM(U, normalize=(), **common),
        "BNLSTM": keras_ln.BNLSTM(U, normalize=(), max_steps=T, **common),
    }


@pytest.mark.parametrize("name", ["LNLSTM", "BNLSTM"])
def test_lstm(name):
    """The same weights in the same order, the same values and gradients.

    Keras' float32 loops on JAX and torch set the precision.
    """
    theirs = keras.layers.LSTM(U, return_sequences=True, use_cudnn=False)
    theirs.build(X.shape)
    randomize(theirs)
    layer = plain_lstms()[name]
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


def test_untrained_weight_norm_is_the_plain_lstm():
    keras.utils.set_random_seed(5)
    theirs = keras.layers.LSTM(U, return_sequences=True)
    expected = keras.ops.convert_to_numpy(theirs(X))
    keras.utils.set_random_seed(5)
    ours = keras_ln.WNLSTM(U, return_sequences=True)
    y = keras.ops.convert_to_numpy(ours(X))
    close(y, expected, **FLOAT32_VALUES)
    weights = named_weights(ours)
    for matrix, gain in (
        ("kernel", "kernel_g"),
        ("recurrent_kernel", "recurrent_g"),
    ):
        close(weights[gain], np.linalg.norm(weights[matrix], axis=0), rtol=1e-6)


@pytest.mark.parametrize("use_bias", [True, False])
def test_gru_with_the_gate_turned(use_bias):
    """Keras' update gate keeps the old h, ours opens to the new one."""
    # In float32 its loop on JAX with 64 bits refuses a carry of two dtypes.
    theirs = keras.layers.GRU(
        U, return_sequences=True, use_bias=use_bias, dtype="float64"
    )
    theirs.build(X.shape)
    randomize(theirs)
    ours = keras_ln.LNGRU(
        U, return_sequences=True, normalize=(), use_bias=use_bias
    )
    ours.build(X.shape)
    kernel, recurrent_kernel, *bias = theirs.get_weights()
    biases = list(bias[0]) if bias else []
    turn = np.repeat([-1.0, 1.0, 1.0], U)  # sigmoid(-z) is 1 - sigmoid(z)
    weights = [kernel, recurrent_kernel, *biases]
    ours.set_weights([weight * turn for weight in weights])
    assert [w.name for w in ours.weights[2:]] == (
        ["bias", "recurrent_bias"] if use_bias else []
    )
    y = keras.ops.convert_to_numpy(ours(X))
    expected = keras.ops.convert_to_numpy(theirs(X))
    close(y, expected, **FLOAT32_VALUES)
    oracle, _ = keras_gru(
        kernel,
        recurrent_kernel,
        bias[0] if bias else 0.0,
        X,
        np.zeros((B, U)),
    )
    close(y, oracle, **FLOAT32_VALUES)
    ours.set_weights(weights)
    unturned = keras.ops.convert_to_numpy(ours(X))
    assert abs(unturned - expected).max() > 1e-2
