"""Images, as vectors of features, with five captions each.

They come from generated scenes or from the files of Vendrov et al.,
"Order-Embeddings of Images and Language" (2016): COCO, with features of VGG19.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import files, runs
from common.datasets import plain_text, scenes
from common.datasets.plain_text import PADDING, UNKNOWN
from common.datasets.scenes import EACH
from common.errors import InputError
from common.ranking import FOLDS

SPLITS = ("train", "dev", "test")
HOMEPAGE = "https://github.com/ivendrov/order-embedding"

# The numbers of generated scenes for training, validation and testing.
SMALL_COUNTS = (3_200, 200, 1_000)

Part = tuple[Sequence[str], np.ndarray]


class Split(NamedTuple):
    """Captions and images; the captions of image n are 5 n to 5 n + 4."""

    words: np.ndarray  # (5 N, T) int32: words, END, then PADDING
    features: np.ndarray  # (N, D) float32, rows of length 1

    @property
    def fed(self) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """All captions with their images, and the numbers of the images."""
        images = np.arange(len(self.words)) // EACH
        return (self.words, self.features[images]), images

    def batches(
        self, batch: int, seed: int, first: int
    ) -> Iterator[tuple[Any, np.ndarray]]:
        """Endless batches like `fed`, from update `first` on.

        Every pass sees all images, each with one of its captions.
        """
        numbers = runs.shuffled(len(self.features), batch, seed, first)
        for update, images in enumerate(numbers, first):
            random = np.random.default_rng((seed, 1, update))
            rows = EACH * images + random.integers(EACH, size=batch)
            yield (self.words[rows], self.features[images]), images


class Captions(NamedTuple):
    """Images with captions for training, validation and testing."""

    train: Split
    dev: Split
    test: Split
    vocabulary: tuple[str, ...]
    growing: bool  # Whether every caption entails the captions before it.


def load(args: Namespace) -> Captions:
    """Loads the captions of --data.

    Captions are cut after --length words. The vocabulary has the
    words of the training captions.
    """
    if args.data == "embedded":
        random = np.random.default_rng(0)
        parts = [scenes.generate(count, random) for count in SMALL_COUNTS]
    else:
        folder = Path(args.data)
        if not folder.is_dir():
            raise InputError(
                "--data: expected a folder with train_ims.npy, train_caps.txt "
                f"and the same for dev and test ({HOMEPAGE}), received {folder}"
            )
        parts = [read_part(folder, split) for split in SPLITS]
    widths = [features.shape[1] for _, features in parts]
    if len(set(widths)) > 1:
        found = ", ".join(map("{} in {}".format, widths, SPLITS))
        raise InputError(
            f"{args.data}: the images of all parts need equally many "
            f"features, found {found}"
        )
    counts = Counter(word for line in parts[0][0] for word in line.split())
    words = sorted(counts, key=lambda word: (-counts[word], word))
    vocabulary = ("<padding>", "<end>", "<unknown>", *words)
    rows = {word: row for row, word in enumerate(vocabulary)}
    lengths = [len(line.split()) for lines, _ in parts for line in lines]
    length = min(args.length, max(lengths))
    # To train with, one fold to validate, and at most five to test with.
    counts = (256 if args.smoke else None, args.fold, FOLDS * args.fold)
    splits = []
    named = zip(counts, SPLITS, parts, strict=True)
    for most, name, (lines, features) in named:
        words = encode(lines, rows, length)
        if (words <= UNKNOWN).all():
            raise InputError(
                f"{args.data}: none of the words of the {name} captions is in "
                "the train captions; all must be in the same language"
            )
        if name != "train" and len(features) < args.fold:
            raise InputError(
                f"the {len(features)} {name} images are fewer than the "
                f"{args.fold} of --fold"
            )
        if name == "test":
            most = min(most, len(features) // args.fold * args.fold)
        words = words[: EACH * most] if most else words
        splits.append(Split(words, _unit(features[:most])))
    return Captions(*splits, vocabulary, growing=args.data == "embedded")


def encode(
    captions: Sequence[str], rows: dict[str, int], length: int
) -> np.ndarray:
    """The first words of captions, then an end mark (5 N, length + 1) int32."""
    found = np.full((len(captions), length + 1), PADDING, np.int32)
    for row, caption in zip(found, captions, strict=True):
        numbers = plain_text.encode(caption.split()[:length], rows)
        row[: len(numbers)] = numbers
    return found


def _unit(features: np.ndarray) -> np.ndarray:
    """Rows of length 1, as in the published features."""
    found = np.zeros(features.shape, np.float32)
    for row, own in zip(found, map(np.float64, features), strict=True):
        if largest := np.abs(own).max():
            own /= largest  # Squares of numbers up to 1 do not overflow.
            row[:] = own / np.linalg.norm(own)
    return found


def read_part(folder: Path, split: str) -> Part:
    """Reads {split}_caps.txt, a caption a line, and {split}_ims.npy."""
    images = folder / f"{split}_ims.npy"
    try:
        # Not `np.load`, which takes other files for arrays too.
        with images.open("rb") as file:
            features = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # Errors of NumPy, and of Python's parser.
        reason = str(error).partition("\n")[0]
        raise InputError(f"{images} cannot be read: {reason}") from error
    path = folder / f"{split}_caps.txt"
    # Not splitlines, which would split at other characters too.
    lines = files.read_text(path).removesuffix("\n").split("\n")
    if features.ndim != 2 or features.dtype.kind != "f" or not features.size:
        raise InputError(
            f"{images} should have a row of features per image, found the "
            f"shape {features.shape} of {features.dtype}"
        )
    # A copy of all features in float64 might be too large.
    largest = np.maximum(features.max(axis=1), -features.min(axis=1))
    with np.errstate(over="ignore"):
        if not np.isfinite(largest.astype(np.float64)).all():
            raise InputError(f"{images} has a feature that is not finite")
    if len(lines) != EACH * len(features) or not all(map(str.split, lines)):
        raise InputError(
            f"{path} should have {EACH} captions with words for each of the "
            f"{len(features)} images in {images}, found {len(lines)}, of "
            f"which {sum(not c.split() for c in lines)} are empty"
        )
    return lines, features
