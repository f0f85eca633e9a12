"""The experiment of section 6.1: its losses, published files, devices."""

import keras
import order_embeddings as script
import pytest
from common import files
from scripts import plan
from text_files import write_captions
from two_devices import run_on_two_devices


@pytest.mark.parametrize(
    ("norm", "similarity", "margin"),
    [("none", "order", 0.05), ("symmetric", "cosine", 0.2)],
)
def test_each_kind_has_its_loss(norm, similarity, margin, few):
    args = plan(script.EXPERIMENT, "--norm", norm, "--units", "4")
    data = script.EXPERIMENT.load_data(args)
    task = script.EXPERIMENT.make_task(args, data)
    assert task.model.loss.similarity == similarity
    assert task.model.loss.margin == margin
    outputs = keras.ops.convert_to_numpy(
        task.model([data.dev.words[:9], data.dev.features[:9]])
    )
    assert (outputs.min() < 0) == (similarity == "cosine")


@pytest.mark.full
def test_published_files(tmp_path, few, capsys):
    data, folder = tmp_path / "coco", tmp_path / "run"
    data.mkdir()
    write_captions(data, {"train": 32, "dev": 21, "test": 120})
    flags = ["--smoke", "--fold", "20", "--batch-size", "16", "--epochs", "1"]
    flags += ["--data", str(data), "--norm", "symmetric"]
    flags += ["--evaluate-every", "2"]
    assert script.main([*flags, "--output-dir", str(folder)]) == 0
    metrics = files.read_json(folder / "metrics.json")
    assert metrics["folds"] == 5 and "order_accuracy" not in metrics
    assert "order" not in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.on_tensorflow
def test_data_parallel(tmp_path):
    data, folder = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    write_captions(data, {"train": 64, "dev": 20, "test": 40})
    flags = f"--smoke --fold 20 --batch-size 16 --data {data} --epochs 12"
    flags += f" --learning-rate 0.03 --output-dir {folder}"
    end = run_on_two_devices(script, *flags.split())
    assert end.returncode == 0, end.stderr
    assert len(files.read_json(folder / "environment.json")["devices"]) == 2
    # It learns what it sees.
    rows = files.read_csv(folder / "history.csv")
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
