"""Invariances and hidden-to-hidden dynamics."""

import itertools

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import SEQUENCE_LAYERS, named_weights, randomize

import keras_ln
from keras_ln.analysis import hidden_dynamics, invariance_table

COLUMNS = (
    "weight matrix re-scaling",
    "weight matrix re-centring",
    "weight vector re-scaling",
    "data set re-scaling",
    "data set re-centring",
    "single case re-scaling",
)
# As printed in the paper.
TABLE_1 = {
    "batch": (True, False, True, True, True, False),
    "weight": (True, False, True, False, False, False),
    "layer": (True, True, False, True, False, True),
}
CELLS = list(itertools.product(TABLE_1, range(len(COLUMNS))))


@pytest.fixture(
    scope="module",
    params=itertools.product((0.0, 1e-5), ("float32", "float64")),
    ids=str,
)
def measured(request):
    epsilon, dtype = request.param
    return epsilon, dtype, invariance_table(epsilon=epsilon, dtype=dtype)


@pytest.mark.parametrize("kind, column", CELLS)
def test_every_cell(measured, kind, column):
    epsilon, dtype, table = measured
    expected, name = TABLE_1[kind][column], COLUMNS[column]
    assert table.verdicts[kind][name] is expected
    deviation = table.deviations[kind][name]
    if not expected:
        # Far from what a tolerance could excuse.
        assert deviation > 0.3 and table.bounds[kind][name] < 1e-4
    elif epsilon == 0:
        # A few roundings of numbers of order one.
        assert deviation < 10 * np.finfo(dtype).eps
    else:
        assert deviation < 1e-5


def test_the_bound_is_that_of_epsilon():
    """Where rounding is small, the residual comes close to its bound."""
    table = invariance_table(epsilon=1e-5, dtype="float64")
    for kind in ("batch", "layer"):
        for column in ("weight matrix re-scaling", "data set re-scaling"):
            deviation = table.deviations[kind][column]
            assert 0.3 < deviation / table.bounds[kind][column] < 1
    # A tenth of it is no longer enough: the verdict does depend on it.
    assert table.bounds["batch"][column] > 1e-6
    without = invariance_table(epsilon=0.0, dtype="float64")
    assert without.bounds["batch"][column] < 1e-12


def test_rows_and_columns_and_seed():
    table = invariance_table(kinds=("layer", "batch"), units=3, seed=4)
    assert list(table.verdicts) == ["layer", "batch"]
    assert tuple(table.verdicts["layer"]) == COLUMNS
    assert table.verdicts["batch"] == dict(
        zip(COLUMNS, TABLE_1["batch"], strict=True)
    )
    again = invariance_table(kinds=("layer", "batch"), units=3, seed=4)
    other = invariance_table(kinds=("layer", "batch"), units=3, seed=5)
    assert table.deviations == again.deviations
    assert table.deviations != other.deviations


def test_it_prints_as_in_the_paper():
    lines = str(invariance_table()).splitlines()
    heading = [
        " ".join(words)
        for words in zip(*(line.split() for line in lines[:3]), strict=True)
    ]
    assert heading == list(COLUMNS)
    for kind, line in zip(TABLE_1, lines[3:6], strict=True):
        words = ["invariant" if cell else "no" for cell in TABLE_1[kind]]
        assert line.split() == [kind, *words]
    assert lines[6] == "Of the normalised summed inputs, before gain and bias."
    assert max(map(len, lines)) <= 80


class Normalised(keras.layers.Dense):
    """A layer of a user, with one thing that can be wrong."""

    def __init__(self, *args, fault=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.fault = fault

    def call(self, x):
        a = keras.ops.matmul(x, self.kernel)
        if self.fault != "no mean":
            a = a - keras.ops.mean(a, -1, keepdims=True)
        square = keras.ops.mean(a * a, -1, keepdims=True)
        if self.fault == "large epsilon":
            square = square + 0.1
        if self.fault == "whole batch":
            square = keras.ops.mean(square, 0, keepdims=True)
        if self.fault == "variance":
            return a / square
        return a / keras.ops.sqrt(square)


@pytest.mark.parametrize(
    "fault, wrong",
    [
        (None, []),
        ("no mean", [1]),
        ("large epsilon", [0, 3, 5]),
        ("whole batch", [5]),
        ("variance", [0, 3, 5]),
    ],
)
def test_a_broken_layer_turns_cells(fault, wrong):
    layer = Normalised(9, fault=fault, name="own")
    table = invariance_table(kinds=(), layer=layer)
    expected = [
        cell != (column in wrong)
        for column, cell in enumerate(TABLE_1["layer"])
    ]
    assert list(table.verdicts["own"].values()) == expected


def test_the_kernel_comes_back_after_an_error():
    class OneUnit(Normalised):
        def call(self, x):
            return keras.ops.multiply(super().call(x), np.nan)

    layer = OneUnit(2)
    layer.build((None, 3))
    before = to_numpy(layer.kernel)
    with pytest.raises(ValueError, match=r"not finite \(unchanged\)"):
        invariance_table(layer=layer)
    np.testing.assert_array_equal(to_numpy(layer.kernel), before)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"kinds": ("group",)}, r"`kinds` must be a sequence of .*'group'"),
        ({"kinds": "layer"}, r"`kinds` must be a sequence of .*='layer'"),
        ({"kinds": 3}, r"`kinds` must be a sequence of any of .*kinds=3"),
        ({"epsilon": -1.0}, r"`epsilon` must be a finite number >= 0"),
        ({"epsilon": 1.0}, r"`epsilon` must be small .* least variance 1"),
        ({"units": 1}, r"`units` must be at least 2: layer norm.*units=1"),
        ({"units": 0}, r"`units` must be a positive integer"),
        ({"dtype": "float16"}, r"`dtype` must be .*Received: float16"),
        ({"layer": abs}, r"`layer` must have a `kernel`, a variable of"),
        ({"layer": keras.layers.Embedding(99, 3)}, r"`layer` must have a `ker"),
        (
            {"layer": keras.layers.Dense(2, dtype="mixed_float16")},
            r"`layer` must be .*Received: float16",
        ),
        (
            {"layer": keras.layers.Dense(2, dtype="bfloat16")},
            r"`layer` must be .*Received: bfloat16",
        ),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        invariance_table(**arguments)


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
        return [to_numpy(y) for y in outputs]

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
def test_bad_input_of_dynamics(layer, shape, message):
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
