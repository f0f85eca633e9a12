"""Images of digits and of other things in ten classes."""

from argparse import Namespace

import numpy as np

from common import devices
from common.datasets import published
from common.errors import InputError

# The last of the published training images, or a twelfth of fewer images.
VALIDATION_IMAGES = 5_000
# Of 1,797 small images; all parts are multiples of usual batch sizes.
SMALL_TRAINING_IMAGES, SMALL_TEST_IMAGES = 1_408, 384
SMOKE = 128  # Images to evaluate with --smoke.

Part = tuple[np.ndarray, np.ndarray]


def parts(args: Namespace) -> list[Part]:
    """Images (N, height, width[, 3]) from 0 to 1, float32, and labels int32.

    Returns three pairs: to train, to validate and to test with.
    """
    if args.data == "embedded":
        whole, test = small_digits()
    elif args.data == "tfds":
        names = ["train", "test"]
        splits = published.load(args.data_set, names, args.data_dir)
        whole, test = ((s["image"], s["label"]) for s in splits)
    else:
        raise InputError(
            f"--data: expected embedded or tfds, received {args.data}; put "
            "published files into DIR/downloads/manual, and add --data-dir DIR"
        )
    held_out = max(1, min(VALIDATION_IMAGES, len(whole[0]) // 11))
    border = len(whole[0]) - held_out
    count = args.examples or border
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


def title(args: Namespace, train: np.ndarray) -> str:
    """The data in a few words."""
    name = "scikit-learn's digits" if args.data == "embedded" else args.data_set
    count, height, width = train.shape[:3]
    return f"{name}, {height} x {width}, {count:,} training images"


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


def binarized(args: Namespace) -> list[np.ndarray]:
    """Images (N, height, width) of 0 and 1: to train, validate and test with.

    Larochelle's fixed binarisation comes from tensorflow-datasets. The images
    of MNIST are binarised here, once and always in the same way: a pixel is 1
    with its value as probability. That would spoil the small embedded images,
    in which a pixel is 1 if it is more black than white.
    """
    if args.data == "tfds" and args.data_set != "mnist":
        names = ["train", "validation", "test"]
        splits = published.load("binarized_mnist", names, args.data_dir)
        found = [np.float32(split["image"][..., 0] > 0) for split in splits]
        print("Data: Larochelle's binarisation of MNIST.")
        return [found[0], *(devices.even(args, own)[0] for own in found[1:])]
    whole = [images for images, _ in parts(args)]
    if args.data == "embedded":
        print("Data: pixels that are more black than white.")
        return [np.float32(images > 0.5) for images in whole]
    print("Data: pixels drawn with their grey values as probabilities, seed 0.")
    random = np.random.default_rng(0)
    return [np.float32(random.random(x.shape) < x) for x in whole]
