"""The experiment of section 6.5: what it writes and what it refuses."""

import dataclasses
import json

import handwriting_generation as script
import keras
import numpy as np
import pytest
from common import cli
from common.datasets import strokes
from scripts import plan


@pytest.fixture(autouse=True)
def few_lines(uncompiled, monkeypatch):
    monkeypatch.setattr(strokes, "SMALL_TRAINING_TEXTS", 64)
    # Of one shape, so that less is to be compiled.
    monkeypatch.setattr(strokes, "SMALL_TEST_TEXTS", 32)
    monkeypatch.setattr(type(script.EXPERIMENT), "evaluation_batch", 32)


@pytest.mark.full
def test_a_comparison_writes_everything(tmp_path, capsys):
    folder = tmp_path / "runs"
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=("layer",))
    flags = ["--smoke", "--compare", "--length", "8", "--text", "ab"]
    assert cli.run(experiment, [*flags, "--output-dir", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "10,863 weights" in out
    assert "updates to the test NLL of layer |" in out
    assert (folder / "comparison.png").exists()
    run = folder / "layer-seed-0"
    assert (run / "samples.png").stat().st_size > 1000
    metrics = json.loads((run / "metrics.json").read_text())
    # The reported value is the saved model's, of all points alike.
    model = keras.models.load_model(run / "model.keras")
    args = plan(experiment, *flags[:1], *flags[2:])
    test = script.EXPERIMENT.load_data(args).test
    before = np.zeros_like(test.points)
    before[:, 1:] = test.points[:, :-1]
    outputs = model([before, test.symbols])
    # It knows its loss.
    nll = model.loss(test.points, outputs, sample_weight=test.valid)
    nll = keras.ops.convert_to_numpy(nll)
    assert nll == pytest.approx(metrics["test_nll"], rel=1e-3)
