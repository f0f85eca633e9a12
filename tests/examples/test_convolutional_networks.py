"""The experiment of section 6.7: its data."""

import convolutional_networks as script
import data_sets
import numpy as np
import pytest
from common.datasets import mnist, published
from common.errors import InputError
from scripts import plan


def test_mnists_files_are_pictures_of_one_channel(tmp_path):
    data_sets.MNIST.make(tmp_path)
    flags = ["--data", str(tmp_path), "--examples", "5"]
    args = plan(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(args)
    np.testing.assert_array_equal(
        data.train_images[..., 0],
        np.float32(data_sets.images(7, 3, 3)[:5]) / 255,
    )
    assert data.test_images.shape == (4, 3, 3, 1)
    described = script.EXPERIMENT.describe(args, data)
    assert described == f"{tmp_path.name}, 3 x 3, 5 training and 4 test images"


def test_images_without_a_deviation_are_refused(tmp_path):
    """It would be divided by."""
    data_sets.MNIST.make(tmp_path)
    black = data_sets.packed(2051, np.zeros((7, 3, 3), np.uint8))
    (tmp_path / mnist.ARCHIVES[0]).write_bytes(black)
    args = plan(script.EXPERIMENT, "--data", str(tmp_path))
    with pytest.raises(InputError, match="--data: .* received only pixels of"):
        script.EXPERIMENT.load_data(args)


def test_images_that_cannot_be_halved_twice_are_refused(tmp_path):
    data_sets.MNIST.make(tmp_path)
    args = plan(script.EXPERIMENT, "--data", str(tmp_path), "--batch-size", "1")
    data = script.EXPERIMENT.load_data(args)
    with pytest.raises(InputError, match="at least 4 x 4 .* received 3 x 3"):
        script.EXPERIMENT.check(args, data)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_data_set_of_tfds_is_the_one_named(monkeypatch, name):
    asked = []

    def load(data_set, splits, data_dir, archives, source):
        asked.append(data_set)
        assert source.startswith("http") and name[:7] in source
        images = np.arange(192).reshape(3, 8, 8, 1)
        part = {"image": images, "label": np.arange(3)}
        return [part, part]

    monkeypatch.setattr(published, "load", load)
    flags = ("--data", "tfds", "--data-set", name)
    args = plan(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(args)
    assert asked == [name] and data.train_images.shape == (3, 8, 8, 1)
