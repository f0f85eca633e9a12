"""CIFAR-10: small colour photographs of ten things."""

from argparse import Namespace
from pathlib import Path

import numpy as np

from common.datasets import published
from common.datasets.mnist import Digits
from common.errors import InputError

ARCHIVES = ("cifar-10-binary.tar.gz",)
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"

_SIDE = 32
_ROW = 1 + 3 * _SIDE**2  # A label, then the red, green and blue pixels.


def load(args: Namespace) -> Digits:
    """Loads the images (N, 32, 32, 3) of --data and --data-dir.

    Args:
        args: flags whose `data` is "tfds" or the folder of the published
            binary version.
    """
    if args.data == "tfds":
        train, test = (
            (split["image"], split["label"])
            for split in published.load(
                "cifar10", ["train", "test"], args.data_dir, ARCHIVES, SOURCE
            )
        )
    else:
        folder = Path(args.data)
        if not folder.is_dir():
            raise InputError(
                f"--data: expected a folder with {TRAINING_FILES[0]} and the "
                f"other files of CIFAR-10's binary version, received {folder}"
            )
        parts = [read_batch(folder / name) for name in TRAINING_FILES]
        train = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        test = read_batch(folder / TEST_FILE)
    return Digits.of_bytes(train, test)


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads a published file: images (N, 32, 32, 3) and labels, uint8."""
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except FileNotFoundError as error:
        raise InputError(f"--data: {path} does not exist") from error
    if not content.size or content.size % _ROW:
        raise InputError(
            f"{path} should have a multiple of {_ROW} bytes, found "
            f"{content.size}"
        )
    rows = content.reshape(-1, _ROW)
    labels = rows[:, 0]
    if labels.max() > 9:
        raise InputError(f"{path} has a label {labels.max()}, not in 0 to 9")
    images = rows[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    return images.transpose(0, 2, 3, 1), labels
