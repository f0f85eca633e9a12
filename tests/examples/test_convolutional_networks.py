"""The experiment of section 6.7: its data."""

import convolutional_networks as script
import data_sets
import numpy as np
import pytest
from common.datasets import published
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


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_data_set_of_tfds_is_the_one_named(monkeypatch, name):
    asked = []

    def load(data_set, splits, data_dir, archives, source):
        asked.append(data_set)
        assert source.startswith("http") and name[:7] in source
        part = {"image": np.zeros((3, 8, 8, 1)), "label": np.arange(3)}
        return [part, part]

    monkeypatch.setattr(published, "load", load)
    flags = ("--data", "tfds", "--data-set", name)
    args = plan(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(args)
    assert asked == [name] and data.train_images.shape == (3, 8, 8, 1)
