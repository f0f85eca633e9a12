"""The loader of CIFAR-10, on files in exactly the published format."""

from argparse import Namespace

import numpy as np
import pytest
import tensorflow_datasets as tfds
from common.datasets import cifar10, published
from common.errors import InputError

COUNT = 3


def _write(path, seed):
    """Rows of a label and the red, green and blue pixels, row by row."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (COUNT, 32, 32, 3), np.uint8)
    labels = random.integers(0, 10, COUNT, np.uint8)
    content = b""
    for image, label in zip(images, labels, strict=True):
        content += bytes([label])
        for channel in range(3):
            content += image[:, :, channel].tobytes()
    path.write_bytes(content)
    return images, labels


@pytest.fixture
def folder(tmp_path):
    for seed, name in enumerate((*cifar10.TRAINING_FILES, cifar10.TEST_FILE)):
        _write(tmp_path / name, seed)
    return tmp_path


def _load(folder):
    return cifar10.load(Namespace(data=str(folder), data_dir=None))


def test_reads_the_published_format(folder, tmp_path):
    data = _load(folder)
    assert data.train_images.shape == (5 * COUNT, 32, 32, 3)
    assert data.train_images.dtype == np.float32
    assert data.train_labels.dtype == np.int32
    images, labels = _write(tmp_path / "copy", seed=1)
    second = slice(COUNT, 2 * COUNT)
    np.testing.assert_array_equal(
        data.train_images[second], np.float32(images) / 255
    )
    np.testing.assert_array_equal(data.train_labels[second], labels)
    images, labels = _write(tmp_path / "copy", seed=5)
    np.testing.assert_array_equal(data.test_images, np.float32(images) / 255)
    np.testing.assert_array_equal(data.test_labels, labels)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data_batch_4.bin", None, "does not exist"),
        ("test_batch.bin", b"", "multiple of 3073 bytes, found 0"),
        ("data_batch_1.bin", 3072 * b"1", "of 3073 bytes, found 3072"),
        ("data_batch_1.bin", 3073 * b"\n", "a label 10, not in 0 to 9"),
    ],
)
def test_broken_files_are_named(folder, name, content, message):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} .*{message}"):
        _load(folder)


def test_what_tensorflow_datasets_gives(tmp_path, monkeypatch):
    builder = tfds.builder("cifar10", data_dir=tmp_path)
    shape = builder.info.features["image"].shape
    images = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)

    def load(name, splits, data_dir, archives, source):
        assert (name, data_dir) == ("cifar10", "there")
        assert source.endswith(archives[0])
        labels = {"train": [3, 9], "test": [0, 1]}
        return [
            {"image": images, "label": np.int64(labels[split])}
            for split in splits
        ]

    monkeypatch.setattr(published, "load", load)
    data = cifar10.load(Namespace(data="tfds", data_dir="there"))
    np.testing.assert_array_equal(data.train_images, np.float32(images) / 255)
    assert data.test_images.shape == (2, 32, 32, 3)
    assert list(data.train_labels) == [3, 9]
    assert list(data.test_labels) == [0, 1]
    assert data.test_labels.dtype == np.int32
