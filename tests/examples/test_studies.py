"""The study of section 3.1: its layers, numbers and files."""

import os

import keras
import numpy as np
import pytest
import recurrent_dynamics as dynamics
from common import runs
from scripts import refusal, rows

import keras_ln


@pytest.mark.parametrize("kind", dynamics.KINDS)
@pytest.mark.parametrize("cell", dynamics.CELLS)
def test_layers_differ_in_normalisation_alone(cell, kind):
    layer = dynamics.build_model(cell, kind, 2.0, units=5, seed=3)
    ours, keras_own = {
        "RNN": (keras_ln.LNSimpleRNN, keras.layers.SimpleRNN),
        "GRU": (keras_ln.LNGRU, keras.layers.GRU),
        "LSTM": (keras_ln.LNLSTM, keras.layers.LSTM),
    }[cell]
    assert type(layer) is {"plain": keras_own, "layer": ours}[kind]
    plain = dynamics.build_model(cell, "plain", 1.0, units=5, seed=3)
    kernel, recurrent, other_kernel, other_recurrent = (
        keras.ops.convert_to_numpy(weight)
        for one in (layer, plain)
        for weight in (one.cell.kernel, one.cell.recurrent_kernel)
    )
    np.testing.assert_array_equal(kernel, other_kernel)
    np.testing.assert_allclose(recurrent, 2 * other_recurrent, rtol=1e-6)
    np.testing.assert_allclose(
        recurrent @ recurrent.T, 4 * np.eye(5), atol=1e-5
    )


def test_growth_is_the_factor_per_step_backwards():
    gradient = 0.5 ** np.arange(30)[::-1]
    assert dynamics.growth(gradient) == pytest.approx(0.5)
    # What left the numbers of float32 does not count.
    lost = np.r_[np.nan, np.inf, 0.0, 1e-40, gradient]
    assert dynamics.growth(lost) == pytest.approx(0.5)
    assert dynamics.spread([2.0, 5.0, 1.0]) == 5.0


def test_the_scale_shows_in_plain_cells_alone(whole):
    folder = whole("recurrent_dynamics", "--smoke")
    found = rows(folder / "dynamics.csv")
    assert len(found) == len(dynamics.CELLS) * 2 * len(dynamics.SCALES)
    assert len(rows(folder / "curves.csv")) == 12 * len(found)
    spreads = {
        (row["cell"], row["kind"]): float(row["gradient factor"])
        for row in rows(folder / "spread.csv")
    }
    for cell in dynamics.CELLS:
        assert spreads[cell, "plain"] > spreads[cell, "layer"]


def test_a_file_that_cannot_be_written_is_told(tmp_path, capsys, monkeypatch):
    def full(descriptor):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(runs, "open_folder", lambda *args, **kwargs: None)
    flags = ("--smoke", "--output-dir", tmp_path)
    # The numbers come before their files.
    line = refusal(capsys, dynamics.main, *flags, printed="")
    assert "dynamics.csv cannot be written (No space left on device)" in line
