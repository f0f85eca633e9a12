"""Inputs that are huge, tiny, constant or not finite, and zeros in front."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, LAYERS, SEQUENCE_LAYERS, randomize

import keras_ln

B, T, D, U = 4, 5, 6, 8
BAD_ROW, BAD_STEP = 1, 2

# The others wait for the slow suite: XLA compiles each.
FIRST = {
    ("LayerNormalization", False),
    ("BatchNormalization", True),
    ("RecurrentBatchNorm", True),
    ("WeightNormDense", False),
    ("LNLSTM", False),
    ("BNLSTM", True),
}
PROBLEMS = [
    pytest.param(
        row,
        training,
        id=f"{row}-{'training' if training else 'inference'}",
        marks=() if (row.name, training) in FIRST else pytest.mark.slow,
    )
    for row in LAYERS
    for training in ((False, True) if row.batch_statistics else (False,))
]
# float32 through five steps of random weights.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def make(row):
    """A layer with random weights, and inputs of order one for it."""
    arguments = {}
    if "units" in row.arguments:
        arguments["units"] = U
    if "max_steps" in row.arguments:
        arguments["max_steps"] = T
    if row.is_recurrent:
        arguments["return_sequences"] = True
    layer = row.make(**arguments)
    shape = (B, D) if len(row.input_shape) == 2 else (B, T, D)
    layer.build(shape)
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    return randomize(layer), x


def normalizes(row, training):
    """Whether the statistics are those of the inputs."""
    return row.normalizes and (training or not row.batch_statistics)


def spoilt(x, value):
    """The inputs with one number in one row, at one step, replaced."""
    x = x.copy()
    x[(BAD_ROW, BAD_STEP, 0) if x.ndim == 3 else (BAD_ROW, 0)] = value
    return x


@pytest.mark.promise("0, 1e-30, denormal")
@pytest.mark.promise("1e12 to 1e15")
@pytest.mark.promise("1e30")
@pytest.mark.promise("constant rows")
@pytest.mark.parametrize("row, training", PROBLEMS)
def test_finite_inputs(row, training):
    layer, x = make(row)
    rng = np.random.default_rng(2)
    start = [to_numpy(v).copy() for v in layer.weights]
    units = U if "units" in row.arguments else D
    cotangents = [rng.normal(size=(*x.shape[:-1], units))]

    def run(inputs):
        for variable, value in zip(layer.weights, start, strict=True):
            variable.assign(value)
        result = value_and_gradients(
            layer, inputs, cotangents, training=training
        )
        for value in (*result.outputs, *result.gradients.values()):
            assert np.isfinite(value).all()
        for variable in layer.weights:
            assert np.isfinite(to_numpy(variable)).all()
        return result.outputs[0]

    normal, zero = run(x), run(0.0 * x)
    assert abs(normal - zero).max() > 0.1
    # Far below epsilon, denormal or not, is zero.
    for size in (1e-30, 1e-40):
        tiny = run(np.float32(size * x))
        close(tiny, zero, **CLOSE)
    run(np.full_like(x, 3.7))
    large, huge = run(np.float32(1e15) * x), run(np.float32(1e30) * x)
    if normalizes(row, training):
        # The size of the inputs does not matter ...
        if row.name != "BNLSTM":  # whose gradient the state has too.
            larger = run(np.float32(1e12) * x)
            close(larger, large, **CLOSE)
        # ... until their squares overflow, and they pass for zeros. LNSimpleRNN
        # norms the sum of inputs and state: both do.
        if row.name == "LNSimpleRNN":
            zero = np.tile(zero[:, :1], (1, T, 1))
        close(huge, zero, **CLOSE)
    elif not row.is_recurrent:
        close(huge / 1e30, normal - zero, **CLOSE)
    else:
        assert abs(huge).max() <= 1.0


@pytest.mark.promise("constant rows")
def test_constant_rows_give_exactly_beta():
    rows = np.float32([[3.7] * 7, [-1e4] * 7, [1e-3] * 7, [0.1] * 7])
    layer = keras_ln.LayerNormalization()
    layer.build(rows.shape)
    randomize(layer)
    y = to_numpy(layer(rows))
    beta = to_numpy(layer.beta)
    np.testing.assert_array_equal(y, np.tile(beta, (4, 1)))


@pytest.mark.promise("one NaN")
@pytest.mark.promise("one inf")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row, training", PROBLEMS)
def test_what_is_not_finite_stays_where_it_came_in(row, training, value):
    layer, x = make(row)
    start = [to_numpy(v).copy() for v in layer.weights]
    right = value_and_gradients(layer, x, training=training).outputs[0]
    for variable, before in zip(layer.weights, start, strict=True):
        variable.assign(before)
    result = value_and_gradients(layer, spoilt(x, value), training=training)
    y = result.outputs[0]
    # Never a trap for later batches.
    for variable in layer.non_trainable_weights:
        assert np.isfinite(to_numpy(variable)).all()
    if x.ndim == 3 and row.name != "BatchNormalization":
        np.testing.assert_array_equal(y[:, :BAD_STEP], right[:, :BAD_STEP])
    if row.batch_statistics and training:
        # All rows share the statistics.
        at = y[:, BAD_STEP]
        assert not np.isfinite(at).all(axis=-1).any()
    else:
        others = np.arange(B) != BAD_ROW
        np.testing.assert_array_equal(y[others], right[others])
    mine = y[BAD_ROW, BAD_STEP] if x.ndim == 3 else y[BAD_ROW]
    if np.isnan(value) or normalizes(row, training):
        assert np.isnan(mine).any()
        assert np.isnan(result.gradients["x"]).any() or not row.is_recurrent
        if row.is_recurrent:
            assert np.isnan(y[BAD_ROW, BAD_STEP:]).all()
    elif row.is_recurrent:  # The gates saturate.
        assert np.isfinite(y).all()
    else:
        assert not np.isfinite(mine).all()


# name: the growth of the gradient at each step of zeros in a new layer. The
# norms of the zeros have the slope 1. The gates are half open, the forget gate
# of LNLSTM at its bias of 1. The recurrent kernel is orthogonal: of the length
# of h the LSTM's candidate gets 1 / sqrt(4), the GRU's 1 / sqrt(3).
ZERO_STEPS = {
    "LNLSTM": 1 / (1 + np.exp(-1)) + 0.5**2 / 4**0.5,
    "LNGRU": 0.5**2 / 3**0.5 + 0.5,
    "LNSimpleRNN": 1.0,
}


@pytest.mark.promise("If all numbers of a row are equal, recurrent cells")
@pytest.mark.parametrize("name", ZERO_STEPS)
def test_zeros_from_a_state_of_zero_keep_the_gradient(name):
    rows = 16
    ct = [np.random.default_rng(3).normal(size=(rows, 32))]

    def first_gradient(steps):
        """Length of the gradient of the first input."""
        keras.utils.set_random_seed(0)
        layer = BY_NAME[name].layer_class(32, use_fused=False)
        x = np.zeros((rows, steps, 3), "float32")
        result = value_and_gradients(layer, x, ct)
        assert np.isfinite(result.outputs[0]).all()
        return np.linalg.norm(result.gradients["x"][:, 0])

    growth = (first_gradient(30) / first_gradient(10)) ** (1 / 20)
    assert 1 / 1.2 < growth / ZERO_STEPS[name] < 1.2


@pytest.mark.promise("Sequences of 10,000 steps and batches of 4,096")
@pytest.mark.slow
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_ten_thousand_steps(row):
    steps = 10_000
    arguments = {"max_steps": steps} if row.batch_statistics else {}
    layer = row.make(
        units=4, return_sequences=True, return_state=True, **arguments
    )
    x = np.random.default_rng(5).normal(size=(2, steps, 3)).astype("float32")
    layer.build(x.shape)
    randomize(layer)
    result = value_and_gradients(layer, x, training=row.batch_statistics)
    for value in (*result.outputs, *result.gradients.values()):
        assert np.isfinite(value).all()
    if row.batch_statistics:
        return  # The second half would start at step 0 again.
    # The same in two halves, the state handed on.
    half = steps // 2
    y, *states = layer(x[:, :half])
    rest, *states = layer(x[:, half:], initial_state=states)
    halves = np.concatenate([to_numpy(y), to_numpy(rest)], 1)
    np.testing.assert_array_equal(halves, result.outputs[0])


@pytest.mark.promise("Sequences of 10,000 steps and batches of 4,096")
@pytest.mark.slow
@pytest.mark.parametrize("row, training", PROBLEMS)
def test_a_batch_of_4096(row, training):
    layer, x = make(row)
    many = np.random.default_rng(6).normal(size=(4096, *x.shape[1:]))
    many = many.astype("float32")
    result = value_and_gradients(layer, many, training=training)
    for value in (*result.outputs, *result.gradients.values()):
        assert np.isfinite(value).all()
    if not (row.batch_statistics and training):
        few = layer(many[1000:1007], training=False)
        close(result.outputs[0][1000:1007], few, rtol=1e-4, atol=1e-5)
