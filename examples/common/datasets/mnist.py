"""Images of ten things: scikit-learn's digits, MNIST and Fashion-MNIST."""

import gzip
import math
import struct
import zlib
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.datasets import published
from common.errors import InputError

ARCHIVES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
# By their names in tensorflow-datasets.
SOURCES = {
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws"
    ".com/",
}

# The rest of the 60,000 published training images is for validation, which
# --tune holds out.
TRAINING_IMAGES = 55_000
# Out of 1,797 small images; both parts are multiples of usual batch sizes.
SMALL_TRAINING_IMAGES = 1_408
SMALL_TEST_IMAGES = 384


class Digits(NamedTuple):
    """Images with values from 0 to 1 and labels from 0 to 9."""

    train_images: np.ndarray  # (N, height, width) float32
    train_labels: np.ndarray  # (N,) int32
    test_images: np.ndarray  # (M, height, width) float32
    test_labels: np.ndarray  # (M,) int32

    @classmethod
    def of_bytes(cls, *parts: tuple[np.ndarray, np.ndarray]) -> "Digits":
        """From (images, labels) to train and to test, with values to 255."""
        return cls(
            *(z for x, y in parts for z in (np.float32(x) / 255, np.int32(y)))
        )

    def first(self, training: int, test: int) -> "Digits":
        """The first images of both parts."""
        x, y, test_x, test_y = self
        return Digits(x[:training], y[:training], test_x[:test], test_y[:test])

    def held_out(self) -> "Digits":
        """Only the training images, a twelfth of them for testing."""
        x, y, _, _ = self
        border = len(x) - len(x) // 12
        return Digits(x[:border], y[:border], x[border:], y[border:])


def load(args: Namespace, data_set: str = "mnist") -> Digits:
    """Loads the images of --data and --data-dir.

    Args:
        args: the flags; a folder may have the files of either data set.
        data_set: the key of `SOURCES` for `--data tfds`.
    """
    if args.data == "embedded":
        return small_digits()
    if args.data == "tfds":
        train, test = published.load(
            data_set,
            ["train" if args.tune else f"train[:{TRAINING_IMAGES}]", "test"],
            args.data_dir,
            ARCHIVES,
            SOURCES[data_set] + ARCHIVES[1],
        )
        images = [split["image"][..., 0] for split in (train, test)]
        labels = [split["label"] for split in (train, test)]
    else:
        if not Path(args.data).is_dir():
            raise InputError(
                f"--data: expected a folder with {ARCHIVES[0]} and the three "
                f"other files of MNIST or Fashion-MNIST, received {args.data}"
            )
        paths = [Path(args.data) / name for name in ARCHIVES]
        images = [read_images(path) for path in paths[::2]]
        labels = [read_labels(path) for path in paths[1::2]]
        for x, y, path in zip(images, labels, paths[1::2], strict=True):
            if len(x) != len(y):
                raise InputError(
                    f"{path} has {len(y)} labels for {len(x)} images"
                )
        (height, width), other = (x.shape[1:] for x in images)
        if other != (height, width):
            raise InputError(
                f"{paths[2]} has images of {other[0]} x {other[1]} pixels, "
                f"{paths[0]} of {height} x {width}"
            )
        if not args.tune:
            images[0] = images[0][:TRAINING_IMAGES]
            labels[0] = labels[0][:TRAINING_IMAGES]
    return Digits.of_bytes(*zip(images, labels, strict=True))


def pooled(images: np.ndarray, side: int) -> np.ndarray:
    """Means of squares with sides of `side` pixels, (N, H / side, W / side)."""
    count, height, width = images.shape
    squares = images.reshape(count, height // side, side, width // side, side)
    return squares.mean(axis=(2, 4))


def small_digits() -> Digits:
    """scikit-learn's 1,797 images of 8 x 8, always split the same way."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = np.float32(bunch.images[order]) / 16
    labels = np.int32(bunch.target[order])
    n, m = SMALL_TRAINING_IMAGES, SMALL_TRAINING_IMAGES + SMALL_TEST_IMAGES
    return Digits(images[:n], labels[:n], images[n:m], labels[n:m])


def read_images(path: Path) -> np.ndarray:
    """Reads a published file of images, (N, height, width) uint8."""
    images = _read_idx(path, magic=2051, rank=3)
    if not images.size:
        count, height, width = images.shape
        raise InputError(
            f"{path}: expected images with pixels, received {count} images of "
            f"{height} x {width} pixels"
        )
    return images


def read_labels(path: Path) -> np.ndarray:
    """Reads a published file of labels, (N,) uint8, at most 9."""
    labels = _read_idx(path, magic=2049, rank=1)
    if labels.size and labels.max() > 9:
        raise InputError(f"{path} has a label {labels.max()}, not in 0 to 9")
    return labels


def _read_idx(path: Path, magic: int, rank: int) -> np.ndarray:
    """Reads one file: big-endian magic number, sizes, then bytes."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"--data: {path} does not exist") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no whole gzip file: {error}") from error
    header = struct.Struct(f">{1 + rank}I")
    if len(content) < header.size:
        raise InputError(f"{path} ends before its {header.size} header bytes")
    found, *shape = header.unpack_from(content)
    if found != magic:
        raise InputError(
            f"{path} should start with the number {magic}, found {found}"
        )
    expected = header.size + math.prod(shape)
    if len(content) != expected:
        raise InputError(
            f"{path} should have {expected} bytes for its sizes {shape}, "
            f"found {len(content)}"
        )
    return np.frombuffer(content, np.uint8, offset=header.size).reshape(shape)
