"""Handwritten digits in black and white, for models of the pixels."""

from argparse import Namespace

import numpy as np

from common import devices
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


def load(args: Namespace) -> list[np.ndarray]:
    """Images (N, height, width) of 0 and 1: to train, validate and test with.

    Larochelle's fixed binarisation comes from tensorflow-datasets. The images
    of MNIST's folder are binarised here, once and always in the same way: a
    pixel is 1 with its value as probability. That would spoil the small
    embedded images, in which a pixel is 1 if it is more black than white.
    """
    if args.data == "tfds":
        splits = published.load(
            "binarized_mnist",
            ["train", "validation", "test"],
            *(args.data_dir, ARCHIVES, SOURCE),
        )
        found = [np.float32(split["image"][..., 0] > 0) for split in splits]
        print("Data: Larochelle's binarisation of MNIST.")
        return [found[0], *(devices.even(args, own)[0] for own in found[1:])]
    parts = [images for images, _ in mnist.parts(args)]
    if args.data == "embedded":
        print("Data: pixels that are more black than white.")
        return [np.float32(images > 0.5) for images in parts]
    print("Data: pixels drawn with their grey values as probabilities, seed 0.")
    random = np.random.default_rng(0)
    return [np.float32(random.random(x.shape) < x) for x in parts]
