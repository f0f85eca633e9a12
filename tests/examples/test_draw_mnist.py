"""The experiment of section 6.4: its data, model and what it writes."""

import dataclasses
import json
from argparse import Namespace

import draw_mnist as script
import draw_mnist_model
import keras
import numpy as np
import pytest
from common import cli
from common.datasets import binarized_mnist, mnist, published


def test_the_papers_size():
    model = draw_mnist_model.build_model("none")
    units, latent, read, write, pixels = 256, 100, 2 * 2 * 2, 5 * 5, 784

    def lstm(inputs):
        return 4 * units * (inputs + units + 1)

    dense = (units + 1) * (2 * latent + 2 * 5 + write)
    expected = lstm(read + units) + lstm(latent) + dense
    trained = sum(np.prod(w.shape) for w in model.trainable_weights)
    assert trained == expected
    assert model.input_shape == model.output_shape == (None, pixels)
    assert model.get_layer("draw").glimpses == 64


@pytest.mark.full
def test_a_run_writes_everything_and_can_be_loaded(
    tmp_path, capsys, monkeypatch, uncompiled
):
    # Of one shape, so that less is to be compiled.
    monkeypatch.setattr(type(script.EXPERIMENT), "evaluation_batch", 32)
    folder = tmp_path / "runs"
    flags = ["--smoke", "--compare", "--output-dir", str(folder)]
    experiment = dataclasses.replace(script.EXPERIMENT, kinds=("layer",))
    assert cli.run(experiment, flags) == 0
    out = capsys.readouterr().out
    assert "Data: pixels that are more black than white." in out
    assert "updates to the test bound of layer |" in out
    assert (folder / "comparison.png").exists()
    run = folder / "layer-seed-0"
    assert (run / "samples.png").stat().st_size > 5000
    metrics = json.loads((run / "metrics.json").read_text())
    # 64 pixels of one bit each, at a guess.
    assert 10 < metrics["test_bound_nats"] < 64 * np.log(2) + 4
    # It knows its loss.
    model = keras.models.load_model(run / "model.keras", safe_mode=True)
    images = binarized_mnist.load(Namespace(data="embedded", data_dir=None))
    x = images.first(0, 128).test.reshape(128, 64)
    bound = model.evaluate(x, x, batch_size=32, verbose=0, return_dict=True)
    # Other noise, the same weights.
    assert bound["loss"] == pytest.approx(metrics["test_bound_nats"], rel=0.05)
    assert bound["kl"] == pytest.approx(metrics["test_kl_nats"], rel=0.05)


def test_grey_pixels_are_probabilities(monkeypatch, capsys):
    grey = np.float32([[0, 0.25], [0.5, 1]])
    digits = mnist.Digits(
        np.tile(grey, (2000, 1, 1)), None, np.tile(grey, (500, 1, 1)), None
    )
    monkeypatch.setattr(mnist, "load", lambda args: digits)
    monkeypatch.setattr(binarized_mnist, "TRAINING_IMAGES", 1500)
    args = Namespace(data="a folder", data_dir=None)
    images = binarized_mnist.load(args)
    assert "grey values as probabilities" in capsys.readouterr().out
    assert images.train.shape == (1500, 2, 2)
    assert images.test.shape == (500, 2, 2)
    for part, deviations in zip(images, (5, 5), strict=True):
        assert set(np.unique(part)) == {0, 1} and part.dtype == np.float32
        error = deviations * np.sqrt(grey * (1 - grey) / len(part))
        assert (np.abs(part.mean(axis=0) - grey) <= error).all()
    np.testing.assert_array_equal(binarized_mnist.load(args).test, images.test)


def test_larochelles_binarisation(monkeypatch, capsys):
    values = np.uint8([[[[0], [1]], [[255], [0]]]])

    def load(name, splits, data_dir, archives, source):
        assert (name, splits) == ("binarized_mnist", ["train", "test"])
        assert len(archives) == 3 and source.endswith("_test.amat")
        return [{"image": values}, {"image": values[:, ::-1]}]

    monkeypatch.setattr(published, "load", load)
    images = binarized_mnist.load(Namespace(data="tfds", data_dir=None))
    assert images.train.tolist() == [[[0, 1], [1, 0]]]
    assert images.test.tolist() == [[[1, 0], [0, 1]]]
    assert "Larochelle" in capsys.readouterr().out
