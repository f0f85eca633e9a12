"""The experiment of section 6.1: what it writes and what it refuses."""

import dataclasses
import functools
import json
from argparse import Namespace

import keras
import numpy as np
import order_embeddings as script
import order_embeddings_model
import pytest
from common import cli, devices, files, ranking
from common.datasets import captions
from common.errors import InputError
from same_results import assert_same_results
from text_files import write_captions
from two_devices import run_on_two_devices

SMOKE = ["--smoke", "--fold", "20", "--batch-size", "16"]


@pytest.fixture(autouse=True)
def few_scenes(uncompiled, monkeypatch):
    monkeypatch.setattr(captions, "SMALL_COUNTS", (64, 20, 50))


def _only(monkeypatch, *kinds):
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=kinds)
    monkeypatch.setattr(script, "main", functools.partial(cli.run, experiment))


def _scores(model, split):
    """-E of all captions and images, one image after the other."""
    pictures = np.repeat(split.features, 5, axis=0)
    both = model([split.words, pictures])
    both = np.float64(keras.ops.convert_to_numpy(both))
    sentences, images = both[:, 0], both[::5, 1]
    return np.stack(
        [-(np.maximum(0, sentences - i) ** 2).sum(axis=1) for i in images],
        axis=1,
    )


@pytest.mark.full
def test_a_comparison_writes_everything(tmp_path, monkeypatch, capsys):
    _only(monkeypatch, "layer")
    folder = tmp_path / "runs"
    flags = [*SMOKE, "--compare", "--epochs", "3", "--output-dir", str(folder)]
    assert script.main(flags) == 0
    out = capsys.readouterr().out
    assert "| order accuracy (%) | updates to a held-out loss of 1000 |" in out
    assert (folder / "comparison.png").stat().st_size > 10_000
    run = folder / "layer-seed-0"
    assert (run / "curves.png").exists()
    metrics = json.loads((run / "metrics.json").read_text())
    rows = files.read_csv(run / "history.csv")
    assert [row["updates"] for row in rows] == [4, 8, 12]

    # The model that was kept is the best one, ready to go on.
    model = keras.saving.load_model(run / "model.keras")
    assert model.optimizer.clipnorm == 2 and not model.optimizer.global_clipnorm
    assert (model.loss.similarity, model.loss.margin) == ("order", 0.05)
    sums = [row["val_recall_sum"] for row in rows]
    best = rows[int(np.argmax(sums))]
    assert metrics["val_recall_sum"] == max(sums)
    assert metrics["best_updates"] == best["updates"]
    assert [row["val_best_recall_sum"] for row in rows] == (
        [max(sums[: n + 1]) for n in range(3)]
    )
    plan = json.loads((run / "args.json").read_text())
    data = captions.load(Namespace(**plan))
    words = (run / "vocabulary.txt").read_text().split("\n")[:-1]
    assert words == [*data.vocabulary]
    found = ranking.measures(_scores(model, data.dev))
    for name, value in found.items():
        assert best[f"val_{name}"] == pytest.approx(value, abs=0.3), name

    # The test is the mean over two folds, and a rest that is left out.
    assert metrics["folds"] == 2
    folds = [
        captions.Split(
            data.test.words[100 * n : 100 * (n + 1)],
            data.test.features[20 * n : 20 * (n + 1)],
        )
        for n in range(2)
    ]
    found = [ranking.measures(_scores(model, fold)) for fold in folds]
    for name in found[0]:
        mean = np.mean([one[name] for one in found])
        assert metrics[name] == pytest.approx(mean, abs=0.3), name
    assert 0 < metrics["order_accuracy"] < 100


@pytest.mark.parametrize("similarity", ["order", "cosine"])
def test_each_kind_has_its_loss(similarity):
    norm = {"order": "none", "cosine": "symmetric"}[similarity]
    args = Namespace(
        **script.EXPERIMENT.presets["quick"],
        **{"norm": norm, "gain": None, "margin": None, "evaluate_every": None},
    )
    args.units, args.seed, args.distribute = 4, 0, "none"
    data = captions.load(Namespace(data="embedded", length=30, data_dir=None))
    task = script.EXPERIMENT.make_task(args, data)
    assert task.model.loss.similarity == similarity
    assert task.model.loss.margin == {"order": 0.05, "cosine": 0.2}[similarity]
    outputs = keras.ops.convert_to_numpy(
        task.model([data.dev.words[:9], data.dev.features[:9]])
    )
    assert (outputs.min() < 0) == (similarity == "cosine")


@pytest.mark.full
def test_published_files_and_a_killed_run(tmp_path, monkeypatch, capsys):
    data = tmp_path / "coco"
    data.mkdir()
    write_captions(data, {"train": 32, "dev": 21, "test": 120})
    flags = [*SMOKE, "--data", str(data), "--norm", "symmetric"]
    flags += ["--epochs", "4", "--evaluate-every", "2", "--output-dir"]
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    assert script.main([*flags, str(unbroken)]) == 0
    metrics = json.loads((unbroken / "metrics.json").read_text())
    assert metrics["folds"] == 5 and "order_accuracy" not in metrics
    assert "order" not in capsys.readouterr().out

    on_epoch_end = order_embeddings_model.Validation.on_epoch_end

    def dies(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt
        on_epoch_end(self, epoch, logs)

    with monkeypatch.context() as patch:
        patch.setattr(order_embeddings_model.Validation, "on_epoch_end", dies)
        with pytest.raises(KeyboardInterrupt):
            script.main([*flags, str(killed)])
    assert script.main([*flags, str(killed), "--resume"]) == 0
    assert_same_results(killed, unbroken, "metrics.json")


def test_devices_share_a_batch_and_have_wrong_pairs(monkeypatch):
    monkeypatch.setattr(devices, "names", lambda: ["CPU:0", "CPU:1"])
    args = Namespace(
        **{"batch_size": 3, "fold": 20, "epochs": 1},
        **{"evaluate_every": None, "distribute": "data-parallel"},
    )
    data = captions.load(Namespace(data="embedded", length=30, data_dir=None))
    with pytest.raises(
        InputError,
        match="--batch-size 3 leaves a device no wrong pairs .*; 4 is the leas",
    ):
        script.EXPERIMENT.check(args, data)
    for args.batch_size in (4, 6):
        script.EXPERIMENT.check(args, data)


def test_the_papers_settings():
    paper = script.EXPERIMENT.presets["paper"]
    assert paper["batch_size"] == 128 and paper["learning_rate"] == 1e-3
    assert (paper["units"], paper["word_units"]) == (1024, 300)
    assert (paper["evaluate_every"], paper["fold"]) == (300, 1000)
    # The updates of COCO's 113,287 training images.
    assert paper["epochs"] * (113_287 // 128) % 300 == 0


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision(tmp_path, dtype):
    flags = [*SMOKE, "--epochs", "8", "--output-dir"]
    mixed, full = tmp_path / "mixed", tmp_path / "full"
    assert script.main([*flags, str(mixed), "--mixed-precision", dtype]) == 0
    losses = [r["val_loss"] for r in files.read_csv(mixed / "history.csv")]
    if dtype == "float16":
        # It leaves out the first updates, whose scaled loss overflows.
        assert losses[-1] < 0.8 * losses[0]
    else:
        assert script.main([*flags, str(full)]) == 0
        (*_, last) = files.read_csv(full / "history.csv")
        assert losses[-1] == pytest.approx(last["val_loss"], rel=0.05)
    model = keras.models.load_model(mixed / "model.keras", compile=False)
    assert model.get_layer("sentence_encoder").compute_dtype == dtype
    assert model.output.dtype == "float32"


@pytest.mark.full
@pytest.mark.on_tensorflow
def test_data_parallel(tmp_path):
    data, folder = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    write_captions(data, {"train": 64, "dev": 20, "test": 40})
    flags = [
        *SMOKE,
        "--data",
        data,
        "--epochs",
        "12",
        "--learning-rate",
        "0.03",
    ]
    end = run_on_two_devices(script, *flags, "--output-dir", folder)
    assert end.returncode == 0, end.stderr
    devices = json.loads((folder / "environment.json").read_text())["devices"]
    assert len(devices) == 2
    # It learns what it sees.
    rows = files.read_csv(folder / "history.csv")
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
