"""How time and memory grow: the scripts run and say what they promise."""

import time

import numpy as np
import pytest
from scripts import rows

from benchmarks import harness, memory, scaling, sequence_layers, settings


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
    table = rows(tmp_path / "s.csv")
    training = [r for r in table if r["mode"] == harness.TRAINING]
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


def test_scaling_of_another_layer(tmp_path, monkeypatch):
    """Beside its rival, with all options in the label."""
    steps = {mode: lambda: time.sleep(1e-4) for mode in harness.MODES}
    monkeypatch.setattr(
        sequence_layers,
        "programs",
        lambda *_: {f"keras {n}": lambda: steps for n in ("LSTM", "GRU")},
    )
    options = ["--layer", "gru", "--recurrent-dropout", "0.3", "--reset"]
    options += ["--dtype", "float16", "--return-sequences", "--smoke"]
    scaling.main([*options, "--output", str(tmp_path / "s")])
    table = rows(tmp_path / "s.csv")
    assert {row["provider"] for row in table} == {"keras GRU"}
    assert table[0]["sizes"] == (
        "2x2x128x128 float16, every step, dropout 0.3, resets"
    )


def test_scaling_by_threads(tmp_path, capsys, monkeypatch):
    """Reading R bounds it here: 4 ms a step with one thread."""
    monkeypatch.setattr(
        scaling,
        "kernel_steps",
        lambda size: {harness.INFERENCE: lambda threads: time.sleep(1e-4)},
    )
    products = {(512, 256, 1024): 1.0, (1, 5, 20): 4.0}
    monkeypatch.setattr(
        scaling, "milliseconds_of_product", lambda *sizes: products[sizes]
    )
    output = ["--output", str(tmp_path / "s")]
    scaling.main(["--smoke", "--threads", "1", "4", *output])
    table = rows(tmp_path / "s.csv")
    assert [(r["threads"], r["bound_ms"]) for r in table] == [
        ("1", "16.0"),
        ("4", "4.0"),
    ]
    assert "at least 16.00: 0.00 MFLOP and" in capsys.readouterr().out
    # Three rows of two features and five units, forwards and back.
    mflop, megabytes, _ = scaling.bounds((3, 4, 2, 5), harness.TRAINING, 1)
    assert np.isclose(mflop, 3 * 2 * 3 * (2 + 5) * 20 / 1e6)
    assert np.isclose(megabytes, 2 * 5 * 20 * 4 / 1e6)


def test_memory(tmp_path, capsys, monkeypatch):
    peaks = {"keras_ln, x": 30.0, "cell loop of keras_ln, x": 60.0}
    monkeypatch.setattr(sequence_layers, "programs", lambda *_: peaks)
    monkeypatch.setattr(
        sequence_layers,
        "memory_of",
        lambda options, size, provider: {harness.TRAINING: peaks[provider]},
    )
    memory.main(["--sizes", "A", "C", "--output", str(tmp_path / "m")])
    table = rows(tmp_path / "m.csv")
    assert [r["sizes"][0] for r in table] == ["A", "A", "C", "C"]
    assert [float(r["peak_memory_mb"]) for r in table] == [30, 60] * 2
    assert [float(r["ours_to_this"]) for r in table] == [1, 0.5] * 2
    assert "ours/this 0.50" in capsys.readouterr().out


@pytest.mark.parametrize(
    "peaks",
    [
        {"keras_ln, x": 0.0, "cell loop of keras_ln, x": 6.0},
        {"keras_ln, x": -3.0, "cell loop of keras_ln, x": 6.0},
        {"cell loop of keras_ln, x": 6.0, "LN scan with autodiff": 4.0},
    ],
)
def test_no_ratio_without_a_positive_peak_of_our_layer(
    peaks, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(sequence_layers, "programs", lambda *_: peaks)
    monkeypatch.setattr(
        sequence_layers,
        "memory_of",
        lambda options, size, provider: {harness.TRAINING: peaks[provider]},
    )
    memory.main(["--smoke", "--output", str(tmp_path / "m")])
    table = rows(tmp_path / "m.csv")
    assert [row["ours_to_this"] for row in table] == ["", ""]
    assert "ours/this" not in capsys.readouterr().out


def test_memory_that_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(sequence_layers, "memory_of", lambda *_: None)
    with pytest.raises(SystemExit, match="does not report peak memory"):
        memory.main(["--smoke"])


@pytest.mark.full
def test_memory_of_a_real_layer():
    options = sequence_layers.parse(["--layer", "simple_rnn"])
    size = settings.Size(64, 64, 64, 256)
    ours = next(iter(sequence_layers.programs(options, size)))
    peaks = sequence_layers.memory_of(options, size, ours)
    if peaks is None:  # Without /proc there is nothing to read.
        return
    # What is kept for the gradient has at least 64 x 64 x 256 floats, 4 MB.
    assert 4 < peaks[harness.TRAINING] < 400
