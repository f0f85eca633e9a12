"""Sizes over time, against loops in NumPy and finite differences."""

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import SEQUENCE_LAYERS, named_weights, randomize

import keras_ln
from keras_ln.analysis import hidden_dynamics

B, T, D, U = 2, 5, 3, 4


@pytest.fixture
def x():
    return np.random.default_rng(5).normal(size=(B, T, D))


def root_mean_square(values):
    return np.sqrt(np.mean(np.square(values)))


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_layers_of_the_package(x, row):
    """States are those of the layer, gradients those of its own outputs."""
    count, arguments = row.state_count, {"units": U, "dtype": "float64"}
    if row.batch_statistics:
        arguments["max_steps"] = T
    layer = row.layer_class(
        return_sequences=True, return_state=True, **arguments
    )
    layer.build((B, T, D))
    randomize(layer)
    found = hidden_dynamics(layer, x, seed=3)

    def run(x, states):
        tensors = [keras.ops.convert_to_tensor(s) for s in states]
        outputs = layer(keras.ops.convert_to_tensor(x), initial_state=tensors)
        return [np.asarray(keras.ops.convert_to_numpy(y)) for y in outputs]

    states = [np.zeros((B, U)) for _ in range(count)]
    trace = [states]
    for t in range(T):
        if row.batch_statistics:
            # Its statistics are those of the step, counted from the start.
            states = run(x[:, : t + 1], trace[0])[1:]
        else:
            states = run(x[:, t : t + 1], states)[1:]
        trace.append(states)
    close(found.state, [root_mean_square(s) for s in trace[1:]], rtol=1e-10)

    weights = named_weights(layer)
    kernel, recurrent = weights["kernel"], weights["recurrent_kernel"]
    if "kernel_g" in row.weights:
        kernel = weights["kernel_g"] * kernel / np.linalg.norm(kernel, axis=0)
        recurrent = recurrent / np.linalg.norm(recurrent, axis=0)
        recurrent = weights["recurrent_g"] * recurrent
    sums = [x[:, t] @ kernel + trace[t][0] @ recurrent for t in range(T)]
    close(found.summed_inputs, [root_mean_square(a) for a in sums], rtol=1e-10)

    assert found.gradient[-1] == pytest.approx(1, rel=1e-12)
    if row.batch_statistics:
        return  # a sequence cannot be started in its middle
    # Finite differences of c . h_T in every entry of the states after step t.
    c = np.random.default_rng(3).normal(size=(B, U))
    c = c / np.linalg.norm(c, axis=1, keepdims=True)
    t, h = 2, 1e-5
    squares = np.zeros(B)
    for k in range(count):
        for u in range(U):
            values = []
            for sign in (1, -1):
                moved = [s.copy() for s in trace[t + 1]]
                moved[k][:, u] += sign * h
                last = run(x[:, t + 1 :], moved)[1]
                values.append((c * last).sum(1))
            squares += ((values[0] - values[1]) / (2 * h)) ** 2
    assert found.gradient[t] == pytest.approx(np.sqrt(squares.mean()), rel=1e-6)


@pytest.mark.parametrize("name", ["LNSimpleRNN", "LNLSTM", "BNLSTM"])
def test_a_cell_by_itself_is_its_layer(x, name):
    """Its counter, which zoneout has too, is no state."""
    arguments = {"zoneout": 0.2, "dtype": "float64"}
    if name == "BNLSTM":
        arguments["max_steps"] = T
    layer = getattr(keras_ln, name)(U, **arguments)
    layer.build((B, T, D))
    randomize(layer)
    cell = getattr(keras_ln, f"{name}Cell")(U, **arguments)
    alone = keras.layers.RNN(cell, dtype="float64")
    alone.build((B, T, D))
    alone.set_weights(layer.get_weights())
    close(hidden_dynamics(alone, x), hidden_dynamics(layer, x), rtol=1e-12)


@pytest.mark.parametrize(
    "layer, shape, message",
    [
        (
            keras.layers.Dense(3),
            (2, 3, 4),
            "a recurrent layer whose `cell` has",
        ),
        (
            keras.layers.RNN([keras_ln.LNLSTMCell(2), keras_ln.LNLSTMCell(2)]),
            (2, 3, 4),
            "a recurrent layer whose `cell` has",
        ),
        (keras_ln.LNGRU(3), (2, 3), r"`x` must have rank 3, \(batch, time"),
    ],
)
def test_bad_input(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        hidden_dynamics(layer, np.ones(shape, "float32"))


def test_bad_types():
    with pytest.raises(ValueError, match="`x` must have a floating-point"):
        hidden_dynamics(keras_ln.LNGRU(3), np.ones((2, 3, 4), "int32"))
    with pytest.raises(TypeError, match="`seed` must be an integer"):
        hidden_dynamics(keras_ln.LNGRU(3), np.ones((2, 3, 4)), seed="a")


def test_backwards_the_last_step_comes_first(x):
    layer = keras_ln.LNLSTM(U, go_backwards=True)
    layer.build(x.shape)
    forwards = keras_ln.LNLSTM(U)
    forwards.build(x.shape)
    forwards.set_weights(layer.get_weights())
    found = hidden_dynamics(layer, x.astype("float32"))
    expected = hidden_dynamics(forwards, x[:, ::-1].astype("float32"))
    for name in ("state", "summed_inputs", "gradient"):
        close(getattr(found, name), getattr(expected, name), rtol=1e-6)
