"""The scripts behind the figures of RELIABILITY.md say what they promise."""

import tempfile

import keras
import numpy as np
from scripts import rows

from benchmarks import long_training, precision, report


def test_precision(tmp_path):
    precision.main(["--smoke", "--output", str(tmp_path / "p")])
    table = rows(tmp_path / "p.csv")
    assert [row["dtype"] for row in table] == [
        *("float32", "float16", "bfloat16"),
    ]
    for row in table:
        least, most = {
            "float32": (1e-9, 1e-5),
            "float16": (1e-5, 1e-2),
            "bfloat16": (1e-3, 1e-1),
        }[row["dtype"]]
        for name in ("output_rms", "output_max", "gradient_rms"):
            assert least < float(row[name]) < most
        assert float(row["output_rms"]) < float(row["output_max"])


def test_weights_are_of_order_one():
    y, _ = precision.outputs_and_gradients("WeightNormDense", "float32", (4, 6))
    assert 0.1 < np.abs(y).max() < 10


def test_differences():
    right = np.array([3.0, -4.0, 0.0, 0.0])
    mean, largest = precision.differences(right + [0.0, 0.0, 1.0, 0.0], right)
    assert np.isclose(mean, 0.2) and np.isclose(largest, 0.4)


def test_long_training(tmp_path, monkeypatch, capsys):
    samples = [
        {"step": k, "traces": 2, "resident_mb": 100.0 + 0.01 * k}
        for k in range(5, 30, 5)
    ]
    samples[0]["resident_mb"] = 50.0  # before what is made once is there
    monkeypatch.setattr(long_training, "train", lambda *_: samples)
    assert np.isclose(long_training.growth(samples), 100.0)
    output = str(tmp_path / "l")
    long_training.main(["--smoke", "--output", output])
    assert "+100.00 MB per 10,000 steps" in capsys.readouterr().out
    table = rows(tmp_path / f"l_{keras.backend.backend()}.csv")
    assert [int(row["step"]) for row in table] == [*range(5, 30, 5)]
    long_training.main(["--plot", "--output", output])
    assert (tmp_path / "l.png").exists()


def test_a_smoke_run_and_earlier_results(tmp_path, monkeypatch, capsys):
    results = tmp_path / "results"
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(precision, "measured", lambda *_: [{"layer": "a"}])
    precision.main(["--smoke"])
    assert not results.exists()
    folder = capsys.readouterr().out.split()[-1]
    (table,) = tmp_path.glob("*/*.csv")
    assert str(table.parent) == folder
