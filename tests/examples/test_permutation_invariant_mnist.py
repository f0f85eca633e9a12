"""The experiment of section 6.6: its models and what it writes."""

import dataclasses
import json
import re
import struct

import keras
import numpy as np
import permutation_invariant_mnist as script
import permutation_invariant_mnist_model
import pytest
from common import claims, cli, measures, training
from common.datasets import mnist
from keras import layers
from scripts import rows

import keras_ln

BACKEND = keras.backend.backend()


def _classes(model):
    return [type(layer) for layer in model.layers]


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_papers_model(norm):
    model = permutation_invariant_mnist_model.build_model(norm)
    hidden = {
        "none": [layers.Dense, layers.Activation],
        "layer": [
            layers.Dense,
            keras_ln.LayerNormalization,
            layers.Activation,
        ],
        "batch": [
            layers.Dense,
            keras_ln.BatchNormalization,
            layers.Activation,
        ],
    }[norm]
    # Layer normalisation stays away from the softmax, batch does not.
    output = hidden if norm == "batch" else [layers.Dense, layers.Activation]
    assert _classes(model) == [layers.InputLayer, *hidden, *hidden, *output]
    dense = [x for x in model.layers if isinstance(x, layers.Dense)]
    assert [x.units for x in dense] == [1000, 1000, 10]
    assert all(x.use_bias == (norm != "batch") for x in dense)
    activations = [x for x in model.layers if isinstance(x, layers.Activation)]
    assert [x.activation.__name__ for x in activations] == (
        ["relu", "relu", "linear"]
    )
    expected = 784 * 1000 + 1000 * 1000 + 1000 * 10
    expected += {"none": 2010, "layer": 6010, "batch": 4 * 2010}[norm]
    assert model.count_params() == expected


@pytest.mark.full
def test_unbiased_statistics_at_batch_size_four(tmp_path, monkeypatch):
    found = []

    class Stop(Exception):
        pass

    def fit(task, *args, **kwargs):
        layers = task.model.layers
        found.append({getattr(x, "unbiased", None) for x in layers})
        raise Stop

    monkeypatch.setattr(training.Task, "fit", fit)
    for size in ("4", "128"):
        flags = ["--norm", "batch", "--batch-size", size]
        with pytest.raises(Stop):
            script.main([*flags, "--output-dir", str(tmp_path / size)])
    assert found == [{None, True}, {None, False}]


def _png_size(path):
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">2I", head[16:])


@pytest.mark.full
def test_a_run_writes_everything_and_learns(tmp_path):
    folder = tmp_path / "run"
    flags = ["--smoke", "--epochs", "4", "--evaluate-every", "4"]
    assert script.main([*flags, "--output-dir", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {
        "args.json",
        "curves.png",
        "environment.json",
        "history.csv",
        "metrics.json",
        "model.keras",
    }
    args = json.loads((folder / "args.json").read_text())
    assert args["norm"] == "layer" and args["backend"] == BACKEND
    history = rows(folder / "history.csv")
    assert [int(row["updates"]) for row in history] == list(range(4, 45, 4))
    assert float(history[-1]["epoch"]) == 4
    assert float(history[-1]["loss"]) < 0.8 * float(history[0]["loss"])
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["train_nll"] == float(history[-1]["loss"])
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["keras"] == keras.__version__
    assert environment["training_minutes"] > 0
    assert min(_png_size(folder / "curves.png")) > 500
    # The error that was reported is the saved model's.
    model = keras.models.load_model(folder / "model.keras", compile=False)
    digits = mnist.small_digits()
    x = digits.test_images.reshape(-1, 64)
    found = model.predict(x, verbose=0).argmax(axis=1)
    error = 100 * np.mean(found != digits.test_labels)
    # Two images of 384 may lie on the border and round to another side.
    assert abs(error - metrics["test_error_percent"]) < 100 * 2.5 / 384


@pytest.mark.usefixtures("uncompiled")
def test_a_comparison_writes_table_and_figure(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "runs"
    flags = ["--compare", "--smoke", "--units", "4", "--seed", "0", "1"]
    flags += ["--batch-size", "128", "--output-dir", str(folder)]
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=("layer",))
    claim = claims.Claim(
        "a claim", "layer", "layer", measures.end("test_nll", "test NLL")
    )
    table = claims.OF["permutation_invariant_mnist"]
    monkeypatch.setitem(
        claims.OF,
        "permutation_invariant_mnist",
        dataclasses.replace(table, claims=[claim]),
    )
    assert cli.run(experiment, flags) == 0
    (judged,) = rows(folder / "verdicts.csv")
    # Of two seeds nothing is known.
    assert judged["verdict"] == "undecided" and judged["seeds"] == "2"
    out = capsys.readouterr().out
    assert "[1/2] layer-batch-size-128-seed-0\n" in out
    assert re.search(
        r"\[2/2\] layer-batch-size-128-seed-1, about \d+ s left\n", out
    )
    assert re.search(r"\| norm +\| batch size \| training NLL", out)
    assert "| logistic regression of 1,408 | " in out
    assert "| layer, untrained             | 128        | " in out
    assert _png_size(folder / "comparison.png")[0] > 500
    row, *floors = rows(folder / "comparison.csv")
    assert len(floors) == 3
    assert (row["norm"], row["batch size"]) == ("layer", "128")
    errors = [
        json.loads((path / "metrics.json").read_text())["test_error_percent"]
        for path in folder.glob("layer-*")
    ]
    mean, deviation = row["test error (%)"].split(" ± ")
    assert float(mean) == pytest.approx(np.mean(errors), rel=1e-3)
    # Printed with two digits.
    assert float(deviation) == pytest.approx(np.std(errors, ddof=1), rel=0.05)


@pytest.mark.full
def test_divergence_is_named_and_spares_the_last_model(tmp_path, capsys):
    folder = tmp_path / "run"
    flags = ["--smoke", "--learning-rate", "1e30", "--output-dir"]
    assert script.main([*flags, str(folder), "--norm", "none"]) == 1
    err = capsys.readouterr().err
    assert "loss is " in err and "the last good model is kept" in err
    assert not (folder / "metrics.json").exists()
    assert not (folder / "model.keras").exists()

    # In a comparison it is a result, and the others are trained.
    folder = tmp_path / "runs"
    flags += [str(folder), "--compare", "--batch-size", "128"]
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=("none",))
    assert cli.run(experiment, flags) == 1
    assert "diverged" in capsys.readouterr().out
    assert (folder / "comparison.png").exists()
