"""Benchmarks run, and what they write."""

import importlib.util
import tempfile

import keras
import numpy as np
import pytest
from arrays import close
from scripts import rows

from benchmarks import (
    baselines,
    harness,
    layer_normalization,
    long_training,
    memory,
    plain_models,
    precision,
    report,
    sequence_layers,
    settings,
    streaming,
)

BACKEND = keras.backend.backend()


@pytest.mark.parametrize(
    "main, options, ops, providers",
    [
        (layer_normalization.main, [], ["LayerNormalization"], ["keras"]),
        (streaming.main, [], ["LNLSTM"], ["keras LSTM"]),
        (
            plain_models.main,
            ["--models", "translation", "classifier"],
            ["translation", "classifier"],
            ["keras"] + ["torch.nn"] * (BACKEND == "torch"),
        ),
    ],
    ids=["layer_normalization", "streaming", "plain_models"],
)
def test_times(main, options, ops, providers, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(streaming, "CALLS", 2)
    path = tmp_path / "times.csv"
    main(["--smoke", "--output", str(path), *options])
    table = rows(path)
    assert list(table[0]) == ["run", *harness.COLUMNS]
    printed = capsys.readouterr().out
    for row in table:
        assert row["op"] in ops
        assert 0 < float(row["p20_ms"]) <= float(row["p80_ms"])
        assert row["provider"] in printed
    for op in ops:
        found = {
            row["provider"].partition(",")[0]
            for row in table
            if row["op"] == op and row["mode"] == harness.INFERENCE
        }
        assert {"keras_ln", *providers} <= found


def test_states_are_carried(monkeypatch):
    """What a call returns is what the next one gets."""
    monkeypatch.setattr(streaming, "CALLS", 3)
    received = []

    def call(x, states):
        received.append(states)
        return x, states + 1

    (run,) = streaming._steps(call, np.zeros(1), 0).values()
    run()
    run()
    assert received == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "first, second, said", [(30.0, 60.0, "0.50"), (-3.0, 6.0, "none")]
)
def test_memory(first, second, said, tmp_path, capsys, monkeypatch):
    """Of tiny sizes the system may count less than nothing."""
    peaks = {"keras_ln, x": first, "cell loop of keras_ln, x": second}
    monkeypatch.setattr(sequence_layers, "programs", lambda *_: peaks)
    monkeypatch.setattr(
        memory, "peaks", lambda args: {harness.TRAINING: peaks[args[-1]]}
    )
    path = tmp_path / "m.csv"
    memory.main(["--sizes", "A", "C", "--output", str(path)])
    assert [(r["run"], r["sizes"][0]) for r in rows(path)] == [
        (f"memory_{BACKEND}", size) for size in "AACC"
    ]
    assert [float(r["peak_memory_mb"]) for r in rows(path)] == [
        *(first, second) * 2
    ]
    assert f"ours/this {said}" in capsys.readouterr().out
    monkeypatch.setattr(memory, "peaks", lambda args: None)
    with pytest.raises(SystemExit, match="does not report peak memory"):
        memory.main(["--smoke"])


def test_precision(tmp_path):
    precision.main(["--smoke", "--output", str(tmp_path / "p.csv")])
    table = rows(tmp_path / "p.csv")
    limits = {
        "float32": (1e-9, 1e-5),
        "float16": (1e-5, 1e-2),
        "bfloat16": (1e-3, 1e-1),
    }
    assert [row["dtype"] for row in table] == [*limits]
    for row in table:
        least, most = limits[row["dtype"]]
        for name in ("output_rms", "output_max", "gradient_rms"):
            assert least < float(row[name]) < most
        assert float(row["output_rms"]) < float(row["output_max"])
    y, _ = precision.outputs_and_gradients("WeightNormDense", "float32", (4, 6))
    assert 0.1 < np.abs(y).max() < 10
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
    long_training.main(["--smoke", "--output", str(tmp_path / "l.csv")])
    assert "+100.00 MB per 10,000 steps" in capsys.readouterr().out
    table = rows(tmp_path / "l.csv")
    assert [int(row["step"]) for row in table] == [*range(5, 30, 5)]
    assert table[0]["run"] == BACKEND
    assert (tmp_path / "l.png").exists()


def test_a_smoke_run_and_earlier_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    row = {"layer": "a", "dtype": "float32"}
    monkeypatch.setattr(precision, "measured", lambda *_: [row])
    precision.main(["--smoke"])
    assert not report.RESULTS.exists()
    (table,) = tmp_path.glob("*/*.csv")
    assert str(table) in capsys.readouterr().out


@pytest.mark.parametrize("used", ["native", "cuda", "fused"])
def test_with_kernels_and_without(used, monkeypatch):
    """On a CPU and on a GPU."""
    import keras_ln

    answer = (used, {})
    monkeypatch.setattr(keras_ln.ops, "implementation", lambda _: answer)
    options = sequence_layers.parse(["--providers", "keras_ln"])
    names = [*sequence_layers.chosen(options, settings.SIZES["A"])]
    assert len(names) == (1 if used == "fused" else 3)
    assert names[0].startswith("keras_ln (kernels)") == (len(names) == 3)


@pytest.mark.parametrize(
    "arguments, providers",
    [
        # Without the loops that XLA takes long to compile.
        ([], ("keras_ln", "keras LSTM", "LN scan", "torch")),
        pytest.param(
            ["--layer", "gru", "--recurrent-dropout", "0.5"],
            ("keras_ln", "cell in keras.layers.RNN, tensorflow graph"),
            marks=pytest.mark.full,
        ),
        (["--layer", "bn_lstm", "--return-sequences"], ("keras_ln",)),
        (["--layer", "wn_lstm"], ("keras_ln",)),
        (["--projection", "2"], ("keras_ln", "torch LSTM")),
    ],
)
def test_smoke(arguments, providers, tmp_path, capsys):
    output = tmp_path / "sequences.csv"
    sequence_layers.main(
        ["--smoke", "--output", str(output), *arguments]
        + ["--providers", *providers]
    )
    table = rows(output)
    assert list(table[0]) == ["run", *harness.COLUMNS]
    assert table[0]["provider"].startswith("keras_ln")
    assert {row["mode"] for row in table} == set(harness.MODES)
    every_step = "--return-sequences" in arguments
    for row in table:
        assert row["provider"].startswith(providers)
        assert 0 < float(row["p20_ms"]) <= float(row["p80_ms"])
        assert row["sizes"].startswith("3x4x2x5 float32")
        assert ("every step" in row["sizes"]) == every_step
    backend = keras.backend.backend()
    assert (tmp_path / f"sequence_layers_{backend}.png").exists()
    assert "ours/this" in capsys.readouterr().out


def test_baselines_compute_what_our_layer_does():
    import keras_ln

    if not importlib.util.find_spec("jax"):
        return
    import jax

    shape, units = (3, 4, 2), 5
    layer = keras_ln.LNLSTM(units, return_sequences=True)
    layer.build(shape)
    call, weights = baselines.jax_scan(shape, units, True)
    names = [variable.path.split("/")[-1] for variable in layer.weights]
    layer.set_weights([np.asarray(weights[name]) for name in names])
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = keras.ops.convert_to_numpy(layer(x))
    scanned = call(weights, jax.numpy.asarray(x), False)
    close(scanned, expected, atol=2e-5)
    if importlib.util.find_spec("torch"):
        import torch

        # The kernels of both come from the same generator.
        call, _ = baselines.torch_script(shape, units, True, "float32")
        found = call(torch.tensor(x), False).detach().numpy()
        close(found, expected, atol=2e-5)
