"""Against the repository's golden file, values and every gradient."""

from pathlib import Path

import numpy as np
import pytest

from keras_ln_kernels import CELLS, Sequence

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
    weights = {
        name[2:]: array
        for name, array in data.items()
        if name.startswith("w_") and used(name[2:])
    }
    states = len(CELLS[cell].states)
    sequence = Sequence(
        cell,
        data["x"],
        tuple(data[f"state{k}"] for k in range(states)),
        weights,
        mask=data.get("mask"),
    )
    result = sequence.forward(training=True)
    found = sequence.backward(result.residuals, d_outputs=data["ct"])

    compare("y", result.outputs, data["y"])
    compare("x", found.x, data["gx"])
    for k in range(states):
        compare(f"final{k}", result.final_states[k], data[f"final{k}"])
        compare(f"state{k}", found.initial_states[k], data[f"gstate{k}"])
    for name, gradient in found.weights.items():
        compare(name, gradient, data[f"gw_{name}"])


def test_all_cases_of_the_cells_are_here(golden):
    cases = {name.partition("/")[0] for name in golden}
    assert set(CASES) == {c for c in cases if c.startswith(("ls", "gr", "rn"))}


def compare(name, found, expected):
    error = np.abs(found - expected).max() / max(1.0, np.abs(expected).max())
    assert error < TOLERANCE, f"{name}: {error:.1e}"
