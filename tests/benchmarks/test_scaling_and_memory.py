"""How time and memory grow: the scripts run and say what they promise."""

import csv
import time

import numpy as np
import pytest

from benchmarks import harness, memory, scaling, sequence_layers


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_exponent(power):
    lengths = np.array(scaling.LENGTHS)
    assert np.isclose(scaling.exponent(lengths, 3 * lengths**power), power)


def test_scaling(tmp_path, capsys, monkeypatch):
    steps = {mode: lambda: time.sleep(1e-4) for mode in harness.MODES}
    monkeypatch.setattr(
        sequence_layers, "programs", lambda *_: {"keras_ln, x": lambda: steps}
    )
    scaling.main(["--smoke", "--units", "3", "--output", str(tmp_path / "s")])
    rows = read(tmp_path / "s.csv")
    training = [r for r in rows if r["mode"] == harness.TRAINING]
    assert [(r["varied"], r["sizes"]) for r in training] == [
        ("T", "2x2x3x3 float32"),
        ("T", "2x4x3x3 float32"),
        ("T", "2x6x3x3 float32"),
        ("B", "2x2x3x3 float32"),
        ("B", "4x2x3x3 float32"),
        ("B", "6x2x3x3 float32"),
    ]
    printed = capsys.readouterr().out
    assert "T ^ " in printed and "B ^ " in printed
    assert (tmp_path / "s.png").exists()


def test_memory(tmp_path, capsys, monkeypatch):
    peaks = {"keras_ln, x": 30.0, "cell loop of keras_ln, x": 60.0}
    monkeypatch.setattr(sequence_layers, "programs", lambda *_: peaks)
    monkeypatch.setattr(
        sequence_layers,
        "memory_of",
        lambda options, size, provider: {harness.TRAINING: peaks[provider]},
    )
    memory.main(["--sizes", "A", "C", "--output", str(tmp_path / "m")])
    rows = read(tmp_path / "m.csv")
    assert [r["sizes"][0] for r in rows] == ["A", "A", "C", "C"]
    assert [float(r["peak_memory_mb"]) for r in rows] == [30, 60] * 2
    assert [float(r["ours_to_this"]) for r in rows] == [1, 0.5] * 2
    assert "ours/this 0.50" in capsys.readouterr().out


def test_memory_that_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(sequence_layers, "memory_of", lambda *_: None)
    with pytest.raises(SystemExit, match="does not tell peak memory"):
        memory.main(["--smoke"])


@pytest.mark.full
def test_memory_of_a_real_layer():
    options = sequence_layers.parse(["--layer", "simple_rnn"])
    size = sequence_layers.Size(64, 64, 64, 256)
    ours = next(iter(sequence_layers.programs(options, size)))
    peaks = sequence_layers.memory_of(options, size, ours)
    if peaks is None:  # Without /proc there is nothing to read.
        return
    # What is kept for the gradient has at least 64 x 64 x 256 floats, 4 MB.
    assert 4 < peaks[harness.TRAINING] < 400
