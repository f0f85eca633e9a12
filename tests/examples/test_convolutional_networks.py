"""The experiment of section 6.7: its data."""

import gzip
import struct

import convolutional_networks as script
import numpy as np
import pytest
from common.datasets import mnist, published
from scripts import plan


def test_mnists_files_are_pictures_of_one_channel(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), np.uint8)
    for start, count in ((0, 30), (2, 20)):
        for name, magic, array in (
            (mnist.ARCHIVES[start], 2051, images[:count]),
            (mnist.ARCHIVES[start + 1], 2049, np.uint8(np.arange(count) % 10)),
        ):
            header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
            (tmp_path / name).write_bytes(
                gzip.compress(header + array.tobytes())
            )
    flags = ["--data", str(tmp_path), "--examples", "25"]
    args = plan(script.EXPERIMENT, *flags)
    data = script.EXPERIMENT.load_data(args)
    np.testing.assert_array_equal(
        data.train_images[..., 0], np.float32(images[:25]) / 255
    )
    assert data.test_images.shape == (20, 8, 8, 1)
    described = script.EXPERIMENT.describe(args, data)
    assert described == (
        f"{tmp_path.name}, 8 x 8, 25 training and 20 test images"
    )


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
