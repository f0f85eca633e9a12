"""Handwritten digits in black and white, for models of the pixels."""

from argparse import Namespace
from typing import NamedTuple

import numpy as np

from common.datasets import mnist, published

ARCHIVES = (
    "binarized_mnist_train.amat",
    "binarized_mnist_valid.amat",
    "binarized_mnist_test.amat",
)
SOURCE = (
    "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/"
    + ARCHIVES[2]
)
# The training images of plain MNIST, as in Larochelle's binarisation.
TRAINING_IMAGES = 50_000


class Images(NamedTuple):
    """Images whose pixels are 0 or 1."""

    train: np.ndarray  # (N, height, width) float32
    test: np.ndarray  # (M, height, width) float32

    def first(self, training: int, test: int) -> "Images":
        """The first images of both parts."""
        return Images(self.train[:training], self.test[:test])

    def held_out(self) -> "Images":
        """Only the training images, an eleventh of them for testing."""
        border = len(self.train) - len(self.train) // 11
        return Images(self.train[:border], self.train[border:])


def load(args: Namespace) -> Images:
    """Loads the images of --data and --data-dir; prints their binarisation.

    Larochelle's fixed binarisation comes from tensorflow-datasets. The images
    of MNIST's folder are binarised here, once and always in the same way: a
    pixel is 1 with its value as probability. That would spoil the small
    embedded images, in which a pixel is 1 if it is more black than white.
    """
    if args.data == "tfds":
        train, test = (
            np.float32(split["image"][..., 0] > 0)
            for split in published.load(
                "binarized_mnist",
                ["train", "test"],
                args.data_dir,
                ARCHIVES,
                SOURCE,
            )
        )
        print("Data: Larochelle's binarisation of MNIST.")
        return Images(train, test)
    digits = mnist.load(args)
    if args.data == "embedded":
        print("Data: pixels that are more black than white.")
        return Images(
            np.float32(digits.train_images > 0.5),
            np.float32(digits.test_images > 0.5),
        )
    print("Data: pixels drawn with their grey values as probabilities, seed 0.")
    random = np.random.default_rng(0)
    return Images(
        binarize(digits.train_images[:TRAINING_IMAGES], random),
        binarize(digits.test_images, random),
    )


def binarize(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Draws every pixel from {0, 1}; its value is the probability of 1."""
    return np.float32(random.random(images.shape) < images)
