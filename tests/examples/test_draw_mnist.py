"""The experiment of section 6.4: its data."""

from argparse import Namespace

import numpy as np
from common.datasets import binarized_mnist, mnist, published


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
