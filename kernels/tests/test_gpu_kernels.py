"""GPU kernels, emulated on a CPU, against the reference in float64."""

import gpu_problems
import numpy as np
import pytest
from gpu_problems import ALONE, CASES, LARGE, SMALL, check, drawn_of, results

from keras_ln_kernels.gpu_plan import CELLS

OPTIONS = {
    "masks": {"masks": ["mask"]},
    "starts": {"masks": ["mask", "starts", "resets"]},
    "starts of zeros, backwards": {"masks": ["starts"], "go_backwards": True},
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", CASES)
def test_instances(emulation, cell, name):
    """Each shape and format, with all sites, masks and starts."""
    options = {"masks": ["mask", "starts", "resets"]}
    drawn = drawn_of(cell, CASES[name], **options)
    check(emulation, cell, CASES[name], drawn)


@pytest.mark.parametrize("cell", CELLS)
def test_size_a(emulation, cell):
    check(emulation, cell, LARGE, drawn_of(cell, LARGE))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("option", OPTIONS)
def test_options(emulation, cell, option):
    check(emulation, cell, SMALL, drawn_of(cell, SMALL, **OPTIONS[option]))


@pytest.mark.parametrize(
    ("cell", "vectors"),
    [
        ("lstm", []),
        ("lstm", ["recurrent_gamma"]),
        ("lstm", ["state_gamma", "state_beta"]),
        ("gru", []),
        ("gru", ["recurrent_bias"]),
    ],
)
def test_absent_sites(emulation, cell, vectors):
    check(emulation, cell, SMALL, drawn_of(cell, SMALL, vectors))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("case", [SMALL, ALONE], ids=["zeros", "one unit"])
def test_rows_without_variance(emulation, cell, case):
    """Of h R, of c', of candidates: none is scaled, nor are gradients.

    From states of zeros with a zx of zeros every norm has such a row; the norm
    over one unit has no others.
    """
    drawn = drawn_of(cell, case)
    drawn.x[:, :2] = 0.0
    for state in drawn.states:
        state[:2] = 0.0
    drawn.weights.pop("recurrent_bias", None)
    check(emulation, cell, case, drawn)


@pytest.mark.parametrize("cell", CELLS)
def test_a_constant_matrix(emulation, cell):
    """Its rows have no variance, whatever the state and its mean."""
    drawn = drawn_of(cell, SMALL)
    drawn.weights["recurrent_kernel"][:] = 0.1
    check(emulation, cell, SMALL, drawn)


@pytest.mark.parametrize("cell", CELLS)
def test_inference_keeps_the_last_step_alone(emulation, cell):
    drawn = drawn_of(cell, SMALL, masks=["mask", "starts", "resets"])
    plan = SMALL.plan(cell)
    every = gpu_problems.forward(emulation, plan, drawn)
    last = gpu_problems.forward(
        emulation, plan, drawn, training=False, last=True
    )
    assert "h" not in last
    for name, array in last.items():
        np.testing.assert_array_equal(array, every[name])
    np.testing.assert_array_equal(every["final_h"], every["h"][:, -1])


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("vectors", [[], None], ids=["plain", "all sites"])
def test_infinite_inputs(emulation, cell, vectors):
    """They are the limit of large ones."""
    drawn = drawn_of(cell, SMALL, vectors)
    large, infinite = (
        results(
            emulation, cell, SMALL, drawn._replace(x=np.sign(drawn.x) * size)
        )
        for size in (1e15, np.inf)
    )
    for name, array in large.items():
        assert np.isfinite(array).all(), name
        np.testing.assert_array_equal(infinite[name], array)


@pytest.mark.parametrize("cell", CELLS)
def test_small_numbers_keep_their_digits(emulation, cell):
    """Which 1 - 2 / (1 + exp(2 x)) would lose."""
    drawn = drawn_of(cell, SMALL, [])
    for array in (drawn.x, *drawn.states):
        array *= 1e-6
    check(emulation, cell, SMALL, drawn)


@pytest.mark.parametrize("cell", CELLS)
def test_steps_left_out_have_no_effect(emulation, cell):
    """Whatever they hold, NaN too."""
    drawn = drawn_of(cell, SMALL, masks=["mask"])
    expected = results(emulation, cell, SMALL, drawn)
    drawn.x[~drawn.options["mask"]] = np.nan
    found = results(emulation, cell, SMALL, drawn)
    for name in ("outputs", "final_h", "d_zx", "d_initial_h"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert not found["d_zx"][~drawn.options["mask"]].any()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "name",
    [
        "units and rows that fill nothing",
        "through global memory",
        "16 rows, and one more",
    ],
)
def test_the_order_of_threads_changes_no_bit(emulation, cell, name):
    drawn = drawn_of(cell, CASES[name], masks=["mask", "starts"])
    one = results(emulation, cell, CASES[name], drawn)
    emulation.fake.fake_seed(5)
    other = results(emulation, cell, CASES[name], drawn)
    emulation.fake.fake_seed(1)
    for key, array in one.items():
        np.testing.assert_array_equal(array, other[key], key)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("name", "batch"),
    [("through global memory", 19), ("16 rows through global memory", 35)],
)
def test_rows_that_do_not_fit_at_once_follow(emulation, cell, name, batch):
    """Blocks without a cluster must all run: here two groups of three."""
    case = CASES[name]._replace(batch=batch)
    drawn = drawn_of(cell, case, masks=["mask"])
    expected = results(emulation, cell, case, drawn)
    emulation.fake.fake_attribute(0, 16, 2 * case.blocks + 1)
    emulation.fake.fake_forget()
    found = results(emulation, cell, case, drawn)
    emulation.become(0, "H100")
    launches = [line for line in emulation.log() if line[0] == "grid"]
    grids = [2 * case.blocks, case.blocks] * 2
    assert [grid for _, _, _, grid, *_ in launches] == grids
    for key, array in expected.items():
        np.testing.assert_array_equal(array, found[key], key)
