"""Images of ten things: scikit-learn's digits, MNIST, Fashion-MNIST, CIFAR-10.

From tensorflow-datasets, or for MNIST's format from a folder of the published
files.
"""

import gzip
import math
import struct
import zlib
from argparse import Namespace
from pathlib import Path

import numpy as np

from common import devices
from common.datasets import published
from common.errors import InputError

ARCHIVES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
# By their names in tensorflow-datasets: the files, and an address of one.
SOURCES = {
    "mnist": (
        ARCHIVES,
        "https://storage.googleapis.com/cvdf-datasets/mnist/" + ARCHIVES[1],
    ),
    "fashion_mnist": (
        ARCHIVES,
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
        + ARCHIVES[1],
    ),
    "cifar10": (
        ("cifar-10-binary.tar.gz",),
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
}
# The last of the published training images, or a twelfth of fewer images.
VALIDATION_IMAGES = 5_000
# Of 1,797 small images; all parts are multiples of usual batch sizes.
SMALL_TRAINING_IMAGES, SMALL_TEST_IMAGES = 1_408, 384
SMOKE = 128  # Images to evaluate with --smoke.
# More than this does not belong into a file of 60,000 images of 28 x 28.
LARGEST = 2**28

Part = tuple[np.ndarray, np.ndarray]


def parts(args: Namespace) -> list[Part]:
    """Images (N, height, width[, 3]) from 0 to 1, float32, and labels int32.

    Returns:
        Three pairs: to train, to validate and to test with.

    Raises:
        InputError: if the data cannot be used.
    """
    if args.data == "embedded":
        whole, test = small_digits()
    elif args.data == "tfds":
        name = getattr(args, "data_set", None) or "mnist"
        files, source = SOURCES[name]
        splits = published.load(
            name, ["train", "test"], args.data_dir, files, source
        )
        whole, test = ((s["image"], s["label"]) for s in splits)
    else:
        whole, test = _read_folder(Path(args.data))
    held_out = max(1, min(VALIDATION_IMAGES, len(whole[0]) // 11))
    border = len(whole[0]) - held_out
    count = getattr(args, "examples", None) or border
    if count > border:
        raise InputError(
            f"--examples {count} is more than the {border} training images"
        )
    most = SMOKE if args.smoke else None
    train, *others = (
        (_grey(x), np.int32(y))
        for x, y in (
            [part[:count] for part in whole],
            [part[border:][:most] for part in whole],
            [part[:most] for part in test],
        )
    )
    return [train, *(tuple(devices.even(args, *own)) for own in others)]


def _grey(images: np.ndarray) -> np.ndarray:
    """From 0 to 1, float32; grey images have no channel."""
    images = images[..., 0] if images.shape[-1] == 1 else images
    largest = 255 if images.dtype == np.uint8 else 1
    return np.float32(images) / np.float32(largest)


def title(args: Namespace, train: Part) -> str:
    """The data in a few words."""
    names = {"embedded": "scikit-learn's digits", "tfds": "tfds"}
    if getattr(args, "data_set", None):
        names["tfds"] = args.data_set
    name = names.get(args.data, Path(args.data).name)
    count, height, width = train[0].shape[:3]
    return f"{name}, {height} x {width}, {count:,} training images"


def check_pixels(images: np.ndarray, least: int) -> None:
    """Refuses images that are too small, or all alike."""
    height, width = images.shape[1:3]
    if min(height, width) < least:
        raise InputError(
            f"--data: expected images of at least {least} x {least} pixels, "
            f"received {height} x {width}"
        )
    if images.min() == images.max():
        raise InputError(
            "--data: expected training images with different pixels, received "
            f"only pixels of {images.max():g}"
        )


def pooled(images: np.ndarray, side: int) -> np.ndarray:
    """Means of squares with sides of `side` pixels, (N, H / side, W / side)."""
    count, height, width = images.shape
    if height % side or width % side:
        raise InputError(
            f"--pool {side} does not divide the {height} x {width} pixels"
        )
    squares = images.reshape(count, height // side, side, width // side, side)
    return squares.mean(axis=(2, 4))


def small_digits() -> list[Part]:
    """scikit-learn's 1,797 images of 8 x 8, always split the same way."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images, labels = np.float32(bunch.images[order]) / 16, bunch.target[order]
    n, m = SMALL_TRAINING_IMAGES, SMALL_TRAINING_IMAGES + SMALL_TEST_IMAGES
    return [(images[:n], labels[:n]), (images[n:m], labels[n:m])]


def _read_folder(folder: Path) -> list[Part]:
    """The published files of MNIST or Fashion-MNIST."""
    if not folder.is_dir():
        raise InputError(
            f"--data: expected a folder with {ARCHIVES[0]} and the three other "
            f"files of MNIST or Fashion-MNIST, received {folder}"
        )
    paths = [folder / name for name in ARCHIVES]
    found = []
    for images_at, labels_at in (paths[:2], paths[2:]):
        images = _read_idx(images_at, magic=2051, rank=3)
        labels = _read_idx(labels_at, magic=2049, rank=1)
        if not images.size:
            raise InputError(f"{images_at}: expected images, received none")
        if labels.size and labels.max() > 9:
            raise InputError(
                f"{labels_at} has a label {labels.max()}, not in 0 to 9"
            )
        if len(images) != len(labels):
            raise InputError(
                f"{labels_at} has {len(labels)} labels for {len(images)} images"
            )
        found.append((images, labels))
    one, two = ("{} x {}".format(*x.shape[1:]) for x, _ in found)
    if one != two:
        raise InputError(
            f"{paths[2]} has images of {two} pixels, {paths[0]} of {one}"
        )
    return found


def _read_idx(path: Path, magic: int, rank: int) -> np.ndarray:
    """Reads one file: big-endian magic number, sizes, then bytes."""
    try:
        with gzip.open(path) as file:
            content = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise InputError(f"--data: {path} does not exist") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no whole gzip file: {error}") from error
    if len(content) > LARGEST:
        raise InputError(f"{path} unpacks to more than {LARGEST >> 20} MiB")
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
