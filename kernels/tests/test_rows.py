"""Rows that are special: without variance, left out, infinite, tiny."""

import numpy as np
import pytest
from problems import (
    backward,
    check_gradients,
    check_values,
    draw,
    forward,
    gradients,
)

CELLS = ["lstm", "gru", "simple_rnn"]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_of_zeros_from_a_state_of_zero(cell, dtype, each_instruction_set):
    """A row without variance is not scaled, nor is its gradient.

    With 1 / sqrt(epsilon) in its place ten such steps would multiply the
    gradient by 316 each.
    """
    vectors = {"kernel_gamma", "recurrent_gamma", "state_gamma"}
    drawn = draw(cell, (3, 10, 4, 6), vectors)
    x = drawn.x.copy()
    x[:, :8] = 0.0
    drawn = drawn._replace(
        x=x, states=tuple(np.zeros_like(state) for state in drawn.states)
    )
    found = gradients(drawn, dtype)
    tight = 1e-12 if dtype == "float64" else 1e-4
    check_values(drawn, found, tight, dtype)
    check_gradients(drawn, found, tight, dtype)
    # Of size 1e19 and more otherwise.
    assert np.abs(found["d_x"]).max() < 1e3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_whose_variance_is_rounding(dtype, each_instruction_set):
    """Half of 16 unit roundoffs of the mean: the factor is the constant 1.

    The values are of size one, so that a gradient through the factor would
    show.
    """
    drawn = draw("simple_rnn", (2, 1, 3, 20))
    mean = 2.0**20 if dtype == "float32" else 2.0**49
    # Exact in the dtype, and so is their mean.
    bias = mean + np.tile([0.5, -0.5], 10)
    zeros = {
        name: np.zeros_like(drawn.weights[name])
        for name in ("kernel", "recurrent_kernel")
    }
    drawn = drawn._replace(weights=drawn.weights | zeros | {"bias": bias})
    found = gradients(drawn, dtype)
    gamma, beta = (drawn.weights[f"kernel_{k}"] for k in ("gamma", "beta"))
    tolerance = 1e-6 if dtype == "float32" else 1e-14
    expected = np.tanh(gamma * (bias - mean) + beta)
    assert np.abs(found["outputs"] - expected).max() < tolerance
    d = (drawn.d_outputs[:, 0] + drawn.d_states[0]) * (1.0 - expected**2)
    d = d * gamma
    d = (d - d.mean(axis=1, keepdims=True)).sum(axis=0)
    assert np.abs(found["d_bias"] - d).max() < 10 * tolerance


@pytest.mark.parametrize("cell", CELLS)
def test_what_stands_at_steps_left_out_does_not_matter(cell):
    drawn = draw(cell, (4, 5, 3, 6), masks=("mask",))
    mask = drawn.options["mask"]
    assert not mask.all()
    x = np.where(mask[..., None], drawn.x, np.nan)
    clean, dirty = gradients(drawn), gradients(drawn._replace(x=x))
    assert np.isfinite(clean["d_kernel"]).all()
    for name, array in clean.items():
        assert array.tobytes() == dirty[name].tobytes(), name


@pytest.mark.parametrize("cell", CELLS)
def test_rows_do_not_see_each_other(cell, each_instruction_set):
    drawn = draw(cell, (9, 4, 3, 7))
    poisoned = drawn.x.copy()
    poisoned[4] = np.nan
    a = forward(drawn)["outputs"]
    b = forward(drawn._replace(x=poisoned))["outputs"]
    others = np.arange(9) != 4
    assert a[others].tobytes() == b[others].tobytes()
    assert np.isnan(b[4]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "cell, vectors",
    [(cell, set()) for cell in CELLS]
    + [("lstm", {"state_gamma"}), ("lstm", {"recurrent_gamma"})]
    + [("gru", {"recurrent_gamma"})],
)
def test_infinite_inputs(cell, vectors, dtype, each_instruction_set):
    """They are the limit of large ones; only their own kernel has no gradient.

    Infinity times the zeros of a padded row is NaN.
    """
    drawn = draw(cell, (3, 3, 1, 6), vectors)
    large, infinite = (
        gradients(drawn._replace(x=np.sign(drawn.x) * size), dtype)
        for size in (1e15, np.inf)
    )
    for name, array in large.items():
        if name != "d_kernel":
            assert np.array_equal(array, infinite[name]), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations(dtype, each_instruction_set):
    """tanh and sigmoid to a few units in the last place, through a cell."""
    points = np.concatenate(
        [np.linspace(-30, 30, 4001), np.logspace(-9, 2, 999)]
    )
    roundoff = np.finfo(dtype).eps / 2
    n = len(points)
    # h' = tanh(x); the one unit's weights are 1 and 0.
    tanh = draw("simple_rnn", (n, 1, 1, 1), set())
    tanh = tanh._replace(
        x=points.reshape(n, 1, 1),
        weights={
            "kernel": np.ones((1, 1)),
            "recurrent_kernel": np.zeros((1, 1)),
        },
    )
    found = forward(tanh, dtype)["outputs"].ravel()
    rounded = points.astype(dtype).astype("float64")
    expected = np.tanh(rounded)
    assert (np.abs(found - expected) <= 6 * roundoff * abs(expected)).all()
    # h' = (1 - sigmoid(x)) * 1: of the GRU's gates z alone sees x.
    gru = draw("gru", (n, 1, 1, 1), set())
    gru = gru._replace(
        x=points.reshape(n, 1, 1),
        states=(np.ones((n, 1)),),
        weights={
            "kernel": np.array([[-1.0, 0.0, 0.0]]),
            "recurrent_kernel": np.zeros((1, 3)),
        },
    )
    found = forward(gru, dtype)["outputs"].ravel()
    expected = 1.0 - 1.0 / (1.0 + np.exp(rounded))
    assert (np.abs(found - expected) < 3 * roundoff).all()


def test_denormals_are_zero_inside_and_not_outside(each_instruction_set):
    tiny = np.float32(1e-40)
    drawn = draw("lstm", (2, 1, 1, 3), set())
    weights = {name: 0.0 * w for name, w in drawn.weights.items()}
    states = (drawn.states[0], np.full((2, 3), 4e-40))
    drawn = drawn._replace(weights=weights, states=states)
    # c' = sigmoid(0) * c.
    assert not forward(drawn, "float32")["final_c"].any()
    assert np.float32(tiny) * np.float32(1.0) > 0.0
    assert (forward(drawn)["final_c"] == 2e-40).all()


@pytest.mark.parametrize("option", [{"go_backwards": True}, {"epsilon": 1e-3}])
def test_the_residuals_of_another_problem_are_refused(option):
    drawn, other = (draw("gru", (2, 3, 4, 5), **o) for o in ({}, option))
    without = drawn._replace(weights=dict(drawn.weights))
    del without.weights["bias"]
    residuals = forward(drawn, training=True)["residuals"]
    for wrong in (other, without):
        with pytest.raises(ValueError, match="residuals were not left by a f"):
            backward(wrong, residuals)
    backward(drawn, residuals)
