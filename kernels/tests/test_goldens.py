"""Against the repository's golden file, values and every gradient."""

from pathlib import Path

import numpy as np
import pytest
from problems import Drawn, gradients

from keras_ln_kernels import CELLS

PATH = Path(__file__).parents[2] / "tests" / "golden" / "recurrence.npz"
# By case: the cell, and of its vectors those that the case uses.
SITES = {"kernel", "recurrent", "state"}
CASES = {
    "lstm_plain": ("lstm", SITES),
    "lstm_masked": ("lstm", SITES),
    "lstm_state_only": ("lstm", {"state"}),
    "lstm_kernel_recurrent": ("lstm", {"kernel", "recurrent"}),
    "gru_plain": ("gru", SITES),
    "gru_masked": ("gru", SITES),
    "rnn_plain": ("simple_rnn", SITES),
    "rnn_masked": ("simple_rnn", SITES),
}
# The file is in float64, and right code agrees to that.
TOLERANCE = 1e-13


@pytest.fixture(scope="module")
def golden():
    with np.load(PATH) as data:
        return dict(data)


@pytest.mark.parametrize("case", CASES)
def test_case(golden, case, each_instruction_set):
    cell, sites = CASES[case]

    def used(name):
        return name.partition("_")[0] in sites or name not in absent

    data = {
        name.removeprefix(f"{case}/"): array
        for name, array in golden.items()
        if name.startswith(f"{case}/")
    }
    absent = {f"{site}_{kind}" for site in SITES for kind in ("gamma", "beta")}
    # The simple RNN has one site, which the file gives no name.
    of_site = {"gamma": "kernel_gamma", "beta": "kernel_beta"}
    weights = {
        name[2:]: array
        for name, array in data.items()
        if name.startswith("w_") and used(name[2:])
    }
    states = CELLS[cell].states
    drawn = Drawn(
        cell,
        data["x"],
        tuple(data[f"state{k}"] for k in range(len(states))),
        {of_site.get(name, name): array for name, array in weights.items()},
        {"mask": data["mask"]} if "mask" in data else {},
        data["ct"],
        (None,) * len(states),
    )
    found = gradients(drawn)
    expected = {"outputs": data["y"], "d_x": data["gx"]}
    for k, state in enumerate(states):
        expected[f"final_{state}"] = data[f"final{k}"]
        expected[f"d_initial_{state}"] = data[f"gstate{k}"]
    for name in weights:
        expected[f"d_{of_site.get(name, name)}"] = data[f"gw_{name}"]
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        compare(name, found[name], array)


def test_all_cases_of_the_cells_are_here(golden):
    cases = {name.partition("/")[0] for name in golden}
    assert set(CASES) == {c for c in cases if c.startswith(("ls", "gr", "rn"))}


def compare(name, found, expected):
    error = np.abs(found - expected).max() / max(1.0, np.abs(expected).max())
    assert error < TOLERANCE, f"{name}: {error:.1e}"
