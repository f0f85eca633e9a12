"""The loader of the published files, on files in exactly that format."""

import gzip
import socket
import struct
from argparse import Namespace
from collections import Counter

import numpy as np
import pytest
from common.datasets import mnist, published
from common.errors import InputError
from sklearn.datasets import load_digits


def _images(count, side=3, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (count, side, side), np.uint8)


def _write(path, magic, array, cut=None):
    header = struct.pack(f">{1 + array.ndim}I", magic, *array.shape)
    path.write_bytes(gzip.compress((header + array.tobytes())[:cut]))


@pytest.fixture
def folder(tmp_path):
    for index, count in ((0, 7), (2, 4)):
        labels = np.arange(count, dtype=np.uint8)
        _write(tmp_path / mnist.ARCHIVES[index], 2051, _images(count))
        _write(tmp_path / mnist.ARCHIVES[index + 1], 2049, labels)
    return tmp_path


def _load(folder):
    return mnist.load(Namespace(data=str(folder), data_dir=None, tune=False))


def test_reads_the_published_format(folder):
    digits = _load(folder)
    np.testing.assert_array_equal(
        digits.train_images, np.float32(_images(7)) / 255
    )
    assert digits.test_images.shape == (4, 3, 3)
    assert digits.train_images.dtype == np.float32
    assert digits.train_labels.dtype == np.int32
    assert list(digits.train_labels) == list(range(7))
    assert list(digits.test_labels) == list(range(4))


def test_keeps_the_papers_training_images(folder, monkeypatch):
    monkeypatch.setattr(mnist, "TRAINING_IMAGES", 5)
    assert [len(part) for part in _load(folder)] == [5, 5, 4, 4]


def _missing(path):
    path.unlink()


def _truncated_gzip(path):
    path.write_bytes(path.read_bytes()[:-12])


def _no_gzip(path):
    path.write_bytes(b"<html>not found</html>")


def _bit_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(bytes(content))


def _other_magic(path):
    _write(path, 2050, _images(7))


def _short(path):
    _write(path, 2051, _images(7), cut=-1)


def _long(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"0"))


def _no_header(path):
    path.write_bytes(gzip.compress(b"\0\0"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_missing, "does not exist"),
        (_truncated_gzip, "is no whole gzip file"),
        (_no_gzip, "is no whole gzip file"),
        (_bit_flip, "is no whole gzip file"),
        (_other_magic, "should start with the number 2051, found 2050"),
        (_short, "should have 79 bytes for its sizes .* found 78"),
        (_long, "should have 79 bytes for its sizes .* found 80"),
        (_no_header, "ends before its 16 header bytes"),
    ],
)
def test_broken_files_are_named(folder, spoil, message):
    spoil(folder / mnist.ARCHIVES[0])
    with pytest.raises(InputError, match=mnist.ARCHIVES[0] + " " + message):
        _load(folder)


def test_labels_have_to_fit(folder):
    path = folder / mnist.ARCHIVES[3]
    _write(path, 2049, np.arange(5, dtype=np.uint8))
    with pytest.raises(InputError, match="has 5 labels for 4 images"):
        _load(folder)
    _write(path, 2049, np.array([1, 2, 3, 10], np.uint8))
    with pytest.raises(InputError, match="has a label 10, not in 0 to 9"):
        _load(folder)


def test_a_file_is_no_folder(folder):
    with pytest.raises(InputError, match="expected a folder with train-images"):
        _load(folder / mnist.ARCHIVES[0])


def test_small_digits_are_split_once():
    digits = mnist.small_digits()
    assert [len(part) for part in digits] == [1408, 1408, 384, 384]
    assert digits.train_images.max() == 1 and digits.train_images.min() == 0
    again = mnist.small_digits()
    for one, two in zip(digits, again, strict=True):
        np.testing.assert_array_equal(one, two)
    # No image is in both parts, and all but five are in one.
    everything = Counter(map(bytes, np.float32(load_digits().images)))
    both = np.concatenate([digits.train_images, digits.test_images])
    found = Counter(map(bytes, both * 16))
    assert found <= everything and found.total() == 1792
    # Every digit is in both parts.
    assert set(digits.train_labels) == set(digits.test_labels) == set(range(10))


def test_no_network_is_told_at_once(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    args = Namespace(data="tfds", data_dir=str(tmp_path), tune=False)
    with pytest.raises(InputError, match="train-images.*cannot be reached"):
        mnist.load(args)
    assert not list(tmp_path.iterdir())


def test_wrong_archives_are_told(tmp_path):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    for name in mnist.ARCHIVES:
        (manual / name).write_bytes(b"not what was published")
    args = Namespace(data="tfds", data_dir=str(tmp_path), tune=False)
    with pytest.raises(InputError, match="cannot be prepared.*wrong checksum"):
        mnist.load(args)


def test_data_sets_are_prepared_once(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    builder = tfds.testing.DummyMnist

    def load():
        splits = ["train[:5]", "test"]
        return published.load(
            builder, splits, str(tmp_path), (), "http://localhost:9"
        )

    train, test = load()
    assert train["image"].shape == (5, 28, 28, 1)
    assert test["label"].shape == (20,)
    monkeypatch.delattr(builder, "_generate_examples")
    np.testing.assert_array_equal(load()[0]["image"], train["image"])
