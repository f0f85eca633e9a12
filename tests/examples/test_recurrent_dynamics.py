"""The script on section 3.1: its layers, numbers and files."""

import keras
import numpy as np
import pytest
import recurrent_dynamics as script
from scripts import rows

import keras_ln


@pytest.mark.parametrize("kind", script.KINDS)
@pytest.mark.parametrize("cell", script.CELLS)
def test_layers_differ_in_normalisation_alone(cell, kind):
    layer = script.build_model(cell, kind, 2.0, units=5, seed=3)
    assert (
        type(layer)
        is {
            ("RNN", "plain"): keras.layers.SimpleRNN,
            ("RNN", "layer"): keras_ln.LNSimpleRNN,
            ("GRU", "plain"): keras.layers.GRU,
            ("GRU", "layer"): keras_ln.LNGRU,
            ("LSTM", "plain"): keras.layers.LSTM,
            ("LSTM", "layer"): keras_ln.LNLSTM,
        }[cell, kind]
    )
    plain = script.build_model(cell, "plain", 1.0, units=5, seed=3)
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
    assert script.growth(gradient) == pytest.approx(0.5)
    # What left the numbers of float32 does not count.
    lost = np.r_[np.nan, np.inf, 0.0, 1e-40, gradient]
    assert script.growth(lost) == pytest.approx(0.5)
    assert script.spread([2.0, 5.0, 1.0]) == 5.0


@pytest.mark.full
def test_a_run(tmp_path, capsys):
    cells, scales = script.CELLS, script.SCALES
    folder = tmp_path / "run"
    assert script.main(["--smoke", "--output-dir", str(folder)]) == 0
    assert {p.name for p in folder.iterdir()} == {
        "args.json",
        "curves.csv",
        "dynamics.csv",
        "figure.png",
        "spread.csv",
    }
    found = rows(folder / "dynamics.csv")
    assert len(found) == len(cells) * 2 * len(scales)
    assert len(rows(folder / "curves.csv")) == 12 * len(found)
    # The scale of the recurrent weights shows in the plain cells.
    spreads = {
        (row["cell"], row["kind"]): float(row["gradient factor"])
        for row in rows(folder / "spread.csv")
    }
    for cell in cells:
        assert spreads[cell, "plain"] > spreads[cell, "layer"]
    assert "| RNN  | plain | 0.5" in capsys.readouterr().out
