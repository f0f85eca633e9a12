"""Texts and the pen's way through them: generated lines, and IAM-OnDB."""

import functools
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from common import devices
from common.datasets.alphabet import ALPHABET, SYMBOLS
from common.errors import InputError

# 57 symbols as in Graves (2013); the last stands for all other characters.

# Fonts that are written with a single line, like handwriting.
FONTS = ("futural", "scripts")
SMALL_TRAINING_TEXTS, SMALL_TEST_TEXTS = 2_048, 256
LONGEST_SMALL_TEXT = 8
SMOKE = 64  # Lines with --smoke.

Line = tuple[str, np.ndarray]


class Strokes(NamedTuple):
    """Lines of text, all padded with zeros to equal lengths.

    Offsets are in units of their standard deviation in the training lines.
    """

    points: np.ndarray  # (N, T, 3) float32: dx, dy, end of stroke
    valid: np.ndarray  # (N, T) float32: 1 up to the last point
    symbols: np.ndarray  # (N, C) int32: 1 to SYMBOLS, 0 after the text

    @property
    def fed(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Inputs, targets and weights for `model.fit`.

        Each point is predicted from the points before it.
        """
        before = np.pad(self.points[:, :-1], ((0, 0), (1, 0), (0, 0)))
        return (before, self.symbols), self.points, self.valid


def load(args: Namespace) -> tuple[Strokes, Strokes, Strokes]:
    """The lines of --data and --data-dir, cut after --length points.

    As in Graves (2013), the smaller validation set of IAM-OnDB is for testing.
    An eighth of all other lines is for validation.
    """
    if args.data == "embedded":
        whole, test = generate(SMALL_TRAINING_TEXTS, SMALL_TEST_TEXTS)
    else:
        from common.datasets import iam_ondb

        found = iam_ondb.read(args)
        test = found.pop("validation")
        whole = sum(found.values(), [])
    if args.smoke:
        whole, test = whole[:SMOKE], test[:SMOKE]
    border = len(whole) - max(1, len(whole) // 8)
    lines = [
        [(text, offsets(way)) for text, way in part]
        for part in (whole[:border], whole[border:], test)
    ]
    if not all(lines):
        raise InputError(f"{args.data} has no lines to train or to test with")
    scale = np.std(np.concatenate([way[:, :2] for _, way in lines[0]]))
    if not scale > 0:
        raise InputError(f"{args.data} has only equal steps to train with")
    everything = sum(lines, [])
    steps = min(args.length, max(len(way) for _, way in everything))
    characters = max(len(text) for text, _ in everything)
    train, *held_out = (
        _pad(part, float(scale), steps, characters) for part in lines
    )
    return train, *(Strokes(*devices.even(args, *own)) for own in held_out)


def offsets(points: np.ndarray) -> np.ndarray:
    """Points (n, 3) as steps (n - 1, 3) from one to the next."""
    return np.concatenate([np.diff(points[:, :2], axis=0), points[1:, 2:]], 1)


def encode(text: str) -> list[int]:
    """A text as symbols, numbered from 1."""
    return [ALPHABET.index(c) + 1 if c in ALPHABET else SYMBOLS for c in text]


def encode_all(texts: Iterable[str]) -> np.ndarray:
    """Texts as symbols (N, C), 0 after the end of the shorter ones."""
    rows = [encode(text) for text in texts]
    padded = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, symbols in zip(padded, rows, strict=True):
        row[: len(symbols)] = symbols
    return padded


def _pad(
    lines: Sequence[Line], scale: float, steps: int, characters: int
) -> Strokes:
    count = len(lines)
    padded = Strokes(
        np.zeros((count, steps, 3), np.float32),
        np.zeros((count, steps), np.float32),
        np.zeros((count, characters), np.int32),
    )
    for (text, way), points, valid, symbols in zip(lines, *padded, strict=True):
        way = way[:steps]
        points[: len(way)] = way / [scale, scale, 1]
        valid[: len(way)] = 1
        symbols[: len(text)] = encode(text)
    return padded


@functools.cache
def generate(
    training: int, test: int, seed: int = 0
) -> tuple[list[Line], list[Line]]:
    """Words of the King James Bible, drawn with stroke fonts.

    Every line has a writer: a font, a slant, a size and random deviations.

    Returns:
        Texts and points (n, 3) for training and for testing. Their words come
        from different verses.
    """
    import pythonbible as bible

    random = np.random.default_rng(seed)
    verses = [
        verse
        for book in (bible.Book.GENESIS, bible.Book.PSALMS, bible.Book.MATTHEW)
        for verse in _verses(book)
    ]
    order = random.permutation(len(verses))
    border = len(verses) * training // (training + test)
    parts = []
    for count, numbers in (
        (training, order[:border]),
        (test, order[border:]),
    ):
        texts = [
            _snippet(verses[random.choice(numbers)], random)
            for _ in range(count)
        ]
        parts.append([(text, draw(text, random)) for text in texts])
    return parts[0], parts[1]


def _verses(book) -> list[str]:
    import pythonbible as bible

    return [
        bible.get_verse_text(
            bible.get_verse_id(book, chapter, verse),
            version=bible.Version.KING_JAMES,
        )
        for chapter in range(1, 25)
        for verse in range(1, 1 + bible.get_number_of_verses(book, chapter))
    ]


def _snippet(verse: str, random: np.random.Generator) -> str:
    """Consecutive words, as many as fit."""
    words = ["".join(c for c in w if c in ALPHABET) for w in verse.split()]
    words = [word for word in words if 0 < len(word) <= LONGEST_SMALL_TEXT]
    start = random.integers(len(words))
    text = words[start]
    for word in words[start + 1 :]:
        if len(text) + 1 + len(word) > LONGEST_SMALL_TEXT:
            break
        text += " " + word
    return text


def draw(text: str, random: np.random.Generator) -> np.ndarray:
    """The points (n, 3) of a writer's way through a text."""
    font = _font(FONTS[random.integers(len(FONTS))])
    slant, size = random.normal(0.1, 0.15), np.exp(random.normal(0, 0.1))
    points = []
    for stroke in font.strokes_for_text(text):
        own = _resample(np.array(list(stroke)))
        own = own @ np.array([[1, 0], [slant, 1]]) * size
        own += random.normal(0, 0.01, own.shape)
        ends = np.zeros((len(own), 1))
        ends[-1] = 1
        points.append(np.concatenate([own, ends], axis=1))
    return np.concatenate(points).astype(np.float32)


@functools.cache
def _font(name: str):
    from HersheyFonts import HersheyFonts

    font = HersheyFonts()
    font.load_default_font(name)
    font.normalize_rendering(1.0)
    return font


def _resample(stroke: np.ndarray, step: float = 0.22) -> np.ndarray:
    """Points at equal distances of about `step` along a stroke (n, 2)."""
    lengths = np.linalg.norm(np.diff(stroke, axis=0), axis=1)
    way = np.concatenate([[0], np.cumsum(lengths)])
    count = max(2, 1 + round(way[-1] / step))
    places = np.linspace(0, way[-1], count)
    return np.stack([np.interp(places, way, x) for x in stroke.T], axis=1)
