"""Cells and options against the reference, values and gradients.

In float64 the tolerance is that of rounding: sums of up to some hundred terms
over some steps.
"""

import itertools

import numpy as np
import pytest
from problems import (
    arguments,
    backward,
    check_gradients,
    check_values,
    draw,
    final_names,
    forward,
    gradients,
    run,
)

from keras_ln_kernels import CELLS
from keras_ln_kernels.library import library

ALL = ("mask", "input_mask", "recurrent_mask")
RESETS = ("starts", "resets")
SITES = ("kernel", "recurrent", "state")


def vectors(sites, betas=True, biases=("bias",)):
    kinds = ("gamma", "beta") if betas else ("gamma",)
    return {*biases, *(f"{s}_{k}" for s in sites for k in kinds)}


def subsets(names):
    return itertools.chain.from_iterable(
        itertools.combinations(names, n) for n in range(len(names) + 1)
    )


LSTMS = [
    ("lstm", vectors(sites, betas), {"carry_normalized_state": carried})
    for sites in subsets(SITES)
    for betas in (True, False)
    for carried in (False, True)
    if not carried or "state" in sites
]
LSTMS += [("lstm", vectors(sites, biases=()), {}) for sites in ((), SITES)]
GRUS = [
    ("gru", vectors(sites, betas, biases), {})
    for sites in subsets(SITES[:2])
    for betas in (True, False)
    for biases in ((), ("bias",), ("bias", "recurrent_bias"))
]
SUMS = [
    (cell, {*more, *kinds}, {"sum_by_gate": by_gate} | options)
    for cell, more, options in (
        ("lstm", (), {}),
        ("lstm", ("bias", "state_gamma", "state_beta"), {}),
        ("lstm", ("state_gamma",), {"carry_normalized_state": True}),
        ("gru", ("bias",), {}),
        ("gru", (), {}),
    )
    for by_gate in (False, True)
    for kinds in (("sum_gamma",), ("sum_gamma", "sum_beta", "sum_bias"))
]
RNNS = [
    ("simple_rnn", names, {})
    for names in (
        {"bias", "kernel_gamma", "kernel_beta"},
        {"kernel_gamma", "kernel_beta"},
        {"kernel_gamma"},
        {"bias"},
        set(),
    )
]


@pytest.mark.parametrize(
    ("cell", "names", "options"), LSTMS + GRUS + RNNS + SUMS
)
def test_sites_and_vectors(cell, names, options):
    drawn = draw(cell, (3, 4, 5, 7), names, masks=ALL, **options)
    found = gradients(drawn)
    check_values(drawn, found, 1e-13)
    check_gradients(drawn, found, 1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize(
    "masks", [*subsets(ALL), ("starts",), RESETS, (*ALL, *RESETS)]
)
@pytest.mark.parametrize("go_backwards", [False, True])
def test_masks_and_directions(cell, masks, go_backwards):
    drawn = draw(cell, (4, 5, 3, 6), masks=masks, go_backwards=go_backwards)
    found = gradients(drawn)
    check_values(drawn, found, 1e-13)
    check_gradients(drawn, found, 1e-12)


def zoneouts(cell, value):
    names = ("zoneout", "cell_zoneout")
    return dict.fromkeys(names[: len(CELLS[cell].states)], value)


@pytest.mark.parametrize("cell", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize("choose", [True, False])
@pytest.mark.parametrize("go_backwards", [False, True])
@pytest.mark.parametrize("masks", [(), ALL])
def test_zoneout(cell, choose, go_backwards, masks, each_instruction_set):
    names = tuple(zoneouts(cell, None)) if choose else ()
    shares = {} if choose else zoneouts(cell, 0.3)
    drawn = draw(
        cell,
        (4, 5, 3, 9),
        masks=masks + names,
        go_backwards=go_backwards,
        **shares,
    )
    found = gradients(drawn)
    check_values(drawn, found, 1e-13)
    check_gradients(drawn, found, 1e-12)
    # The states are written over at inference.
    inference = forward(drawn)
    assert inference["outputs"].tobytes() == found["outputs"].tobytes()


SIZES = [
    (1, 1, 1, 1),
    (2, 1, 3, 1),
    (1, 3, 1, 2),
    (3, 2, 2, 8),
    (2, 3, 5, 9),
    (5, 3, 7, 15),
    (7, 2, 4, 16),
    (3, 2, 6, 17),
    (6, 2, 3, 33),
    (19, 3, 2, 5),
    # x W is kept above 64 features.
    (3, 4, 65, 6),
    (18, 40, 70, 3),
    # A chunk of the backward pass has 512 rows: more steps, and more rows.
    (4, 140, 2, 3),
    (515, 3, 2, 3),
    (1030, 2, 3, 2),
    # Blocks of products are 512 deep, and so wide a matrix is packed.
    (2, 2, 3, 520),
    (2, 2, 520, 3),
]


@pytest.mark.parametrize("cell", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize("sizes", SIZES)
def test_sizes(cell, sizes, each_instruction_set):
    drawn = draw(cell, sizes, masks=ALL)
    found = gradients(drawn)
    # Over many steps a chaotic cell loses digits, and sums are longer.
    check_values(drawn, found, 1e-11)
    check_gradients(drawn, found, 1e-9 if sizes[1] > 100 else 1e-11)


@pytest.mark.parametrize("cell", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize("sizes", [(3, 4, 5, 7), (7, 6, 70, 64), (2, 3, 9, 65)])
def test_float32(cell, sizes, each_instruction_set):
    drawn = draw(cell, sizes, masks=ALL)
    found = gradients(drawn, "float32")
    assert all(array.dtype == np.float32 for array in found.values())
    check_values(drawn, found, 1e-5, "float32")
    check_gradients(drawn, found, 1e-4, "float32")


@pytest.mark.parametrize("cell", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inference_is_the_forward_pass_of_training(cell, dtype):
    # x W for more steps at once, and for all rows: other pieces, equal bits.
    drawn = draw(cell, (130, 6, 5, 9), masks=ALL)
    training, inference = (forward(drawn, dtype, training=t) for t in (1, 0))
    for name, array in inference.items():
        assert array.tobytes() == training[name].tobytes(), name
    last = run(drawn, arguments(drawn, dtype), final_names(drawn), dtype)
    assert np.array_equal(last["final_h"], training["outputs"][:, -1])


def test_no_initial_states_and_no_cotangents_are_zeros():
    drawn = draw("lstm", (3, 4, 5, 6))
    zeros = tuple(np.zeros_like(state) for state in drawn.states)
    d_h = drawn.d_states[0]
    implicit = drawn._replace(
        states=(None, None), d_outputs=None, d_states=(d_h, None)
    )
    explicit = drawn._replace(
        states=zeros,
        d_outputs=np.zeros_like(drawn.d_outputs),
        d_states=(d_h, zeros[1]),
    )
    a, b = gradients(explicit), gradients(implicit)
    assert np.abs(a["d_x"]).max() > 0
    assert set(a) - set(b) == {"d_initial_h", "d_initial_c"}
    for name, array in b.items():
        assert array.tobytes() == a[name].tobytes(), name


def test_gradients_that_are_not_wanted():
    drawn = draw("gru", (3, 4, 5, 6))
    residuals = forward(drawn, training=True)["residuals"]
    everything = backward(drawn, residuals)
    for name, array in everything.items():
        (alone,) = backward(drawn, residuals, wanted=[name]).values()
        assert array.tobytes() == alone.tobytes(), name


@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (5, 7, 3), (6, 16, 16), (13, 513, 65), (64, 100, 130)]
)
def test_product(sizes, dtype, each_instruction_set):
    rows, depth, columns = sizes
    rng = np.random.default_rng(0)
    a = rng.normal(size=(rows, depth)).astype(["f4", "f8"][dtype])
    b = rng.normal(size=(depth, columns)).astype(a.dtype)
    c = np.full((rows, columns), np.nan, a.dtype)
    pointers = (x.ctypes.data for x in (a, b, c))
    assert library().kln_product(dtype, *sizes, *pointers, 2) is None
    exact = a.astype("f8") @ b.astype("f8")
    assert np.abs(c - exact).max() < np.finfo(a.dtype).eps * 2 * depth
