"""Loaded weights against ports of cells whose packages no longer install.

Each port is written from the cell's equations, in its own order of gates.
"""

import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from reference import gradients
from tolerances import FLOAT64

import keras_ln
from keras_ln import compat

B, T, D, U = 3, 4, 5, 6
SCOPES = ("input", "transform", "forget", "output", "state")


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def normalized(z, gamma, beta=0.0, epsilon=1e-12):
    mean = z.mean(axis=1, keepdims=True)
    variance = ((z - mean) ** 2).mean(axis=1, keepdims=True)
    return gamma * (z - mean) / np.sqrt(variance + epsilon) + beta


def tensorflow_1(weights, x, forget_bias):
    """tf.contrib.rnn.LayerNormBasicLSTMCell over x (B, T, D)."""
    h, c, outputs = np.zeros((B, U)), np.zeros((B, U)), []
    for t in range(T):
        z = np.concatenate([x[:, t], h], axis=1) @ weights["kernel"]
        i, j, f, o = (
            normalized(
                part, weights[f"{scope}/gamma"], weights[f"{scope}/beta"]
            )
            for part, scope in zip(np.split(z, 4, axis=1), SCOPES, strict=False)
        )
        c = c * sigmoid(f + forget_bias) + sigmoid(i) * np.tanh(j)
        c = normalized(c, weights["state/gamma"], weights["state/beta"])
        h = np.tanh(c) * sigmoid(o)
        outputs.append(h)
    return np.stack(outputs, axis=1)


def haste_gru(weights, x):
    """haste's LayerNormGRU over x (B, T, D)."""
    h, outputs = np.zeros((B, U)), []
    of_x, of_h = weights["gamma"]
    for t in range(T):
        a = normalized(x[:, t] @ weights["kernel"], of_x, epsilon=1e-5)
        # The first h is zero: a row without variance is not scaled.
        b = 0.0 * a
        if t:
            b = normalized(h @ weights["recurrent_kernel"], of_h, epsilon=1e-5)
        a, b = a + weights["bias"], b + weights["recurrent_bias"]
        a, b = np.split(a, 3, axis=1), np.split(b, 3, axis=1)
        z, r = sigmoid(a[0] + b[0]), sigmoid(a[1] + b[1])
        h = z * h + (1.0 - z) * np.tanh(a[2] + r * b[2])
        outputs.append(h)
    return np.stack(outputs, axis=1)


def drawn(shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def check(layer, port, weights):
    """Values, and the gradient of x."""
    rng = np.random.default_rng(1)
    x, cotangent = rng.normal(size=(B, T, D)), rng.normal(size=(B, T, U))
    result = value_and_gradients(layer, x, [cotangent])
    close(result.outputs[0], port(weights, x), **FLOAT64)
    wanted = gradients.complex_step(
        lambda arrays: gradients.inner(
            [port(weights, arrays["x"])], [cotangent]
        ),
        {"x": x},
    )
    close(result.gradients["x"], wanted["x"], **FLOAT64)


TF1 = {
    "normalize": ("sum", "state"),
    "groups": "gate",
    "use_bias": False,
    "carry_normalized_state": True,
    "epsilon": 1e-12,
}
TF1_SHAPES = {f"{s}/{k}": U for s in SCOPES for k in ("gamma", "beta")}
TF1_SHAPES["kernel"] = (D + U, 4 * U)


@pytest.mark.parametrize("forget_bias", [1.0, 0.0])
def test_tensorflow_1(forget_bias):
    weights = drawn(TF1_SHAPES)
    layer = keras_ln.LNLSTM(U, return_sequences=True, dtype="float64", **TF1)
    named = {f"rnn/lstm_cell/{name}": w for name, w in weights.items()}
    compat.load_tf1_lstm(layer, named, forget_bias)
    check(layer, lambda w, x: tensorflow_1(w, x, forget_bias), weights)


HASTE = {"groups": "all", "center": False, "use_bias": True}
HASTE_SHAPES = {
    "kernel": (D, 3 * U),
    "recurrent_kernel": (U, 3 * U),
    "bias": 3 * U,
    "recurrent_bias": 3 * U,
    "gamma": (2, 3 * U),
}


def test_haste_gru():
    weights = drawn(HASTE_SHAPES)
    layer = keras_ln.LNGRU(U, return_sequences=True, dtype="float64", **HASTE)
    compat.load_haste_gru(layer, weights)
    check(layer, haste_gru, weights)


def test_what_is_refused():
    weights = drawn(TF1_SHAPES)
    with pytest.raises(ValueError, match='groups=.gate.* Received: .*"?paper'):
        compat.load_tf1_lstm(keras_ln.LNLSTM(U), weights)
    layer = keras_ln.LNLSTM(U, **TF1)
    with pytest.raises(ValueError, match="Received: kernel"):
        compat.load_tf1_lstm(layer, {"kernel": weights["kernel"]})
    with pytest.raises(ValueError, match="must have the weights"):
        compat.load_tf1_lstm(keras_ln.LNLSTM(U + 1, **TF1), weights)
    with pytest.raises(ValueError, match='groups="all".* groups=.paper'):
        compat.load_haste_gru(keras_ln.LNGRU(U), drawn(HASTE_SHAPES))
    layer = keras_ln.LNGRU(U, **HASTE)
    with pytest.raises(ValueError, match=r"gamma of shape \(2, 3 units\)"):
        wrong = drawn({**HASTE_SHAPES, "gamma": (2, U)})
        compat.load_haste_gru(layer, wrong)
    assert not layer.built
