"""Texts and the pen's way through them: generated lines, and IAM-OnDB.

Liwicki and Bunke, "IAM-OnDB, an on-line English sentence database acquired
from handwritten text on a whiteboard" (2005). The published archives unpack to

    lineStrokes/a01/a01-000/a01-000u-01.xml   the strokes of one line
    ascii/a01/a01-000/a01-000u.txt            the text of all lines of a form
    trainset.txt testset_v.txt testset_t.txt testset_f.txt   forms, one a line
"""

import functools
import xml.etree.ElementTree as ET
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import devices, files
from common.errors import InputError

# 57 symbols as in Graves (2013); the last stands for all other characters.
ALPHABET = " .,'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SYMBOLS = len(ALPHABET) + 1

# Fonts that are written with a single line, like handwriting.
FONTS = ("futural", "scripts")
SMALL_TRAINING_TEXTS, SMALL_TEST_TEXTS = 2_048, 256
LONGEST_SMALL_TEXT = 8
SMOKE = 64  # Lines with --smoke.

HOMEPAGE = (
    "https://fki.tic.heia-fr.ch/databases/iam-on-line-handwriting-database"
)
# As in Graves (2013) the smaller validation set is for testing.
SPLITS = ("trainset.txt", "testset_t.txt", "testset_f.txt", "testset_v.txt")

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
    """The lines of --data, cut after --length points.

    An eighth of the lines that are not for testing is for validation.
    """
    if args.data == "embedded":
        whole, test = generate(SMALL_TRAINING_TEXTS, SMALL_TEST_TEXTS)
    else:
        folder = Path(args.data)
        if not folder.is_dir():
            raise InputError(
                "--data: expected a folder with lineStrokes, ascii and "
                f"trainset.txt of IAM-OnDB ({HOMEPAGE}), received {args.data}"
            )
        *others, test = ([*lines(folder, split)] for split in SPLITS)
        whole = sum(others, [])
    if args.smoke:
        whole, test = whole[:SMOKE], test[:SMOKE]
    border = len(whole) - max(1, len(whole) // 8)
    parts = [
        # Steps from one point to the next.
        [
            (text, np.c_[np.diff(way[:, :2], axis=0), way[1:, 2:]])
            for text, way in part
        ]
        for part in (whole[:border], whole[border:], test)
    ]
    if not all(parts):
        raise InputError(f"{args.data} has no lines to train or to test with")
    scale = np.std(np.concatenate([way[:, :2] for _, way in parts[0]]))
    if not scale > 0:
        raise InputError(f"{args.data} has only equal steps to train with")
    everything = sum(parts, [])
    steps = min(args.length, max(len(way) for _, way in everything))
    characters = max(len(text) for text, _ in everything)
    train, *held_out = (
        _pad(part, float(scale), steps, characters) for part in parts
    )
    return train, *(Strokes(*devices.even(args, *own)) for own in held_out)


def encode(texts: Sequence[str], length: int | None = None) -> np.ndarray:
    """Texts as symbols (N, length), 0 after the end of the shorter ones."""
    found = np.zeros((len(texts), length or max(map(len, texts))), np.int32)
    for row, text in zip(found, texts, strict=True):
        # `find` is -1 for other characters.
        row[: len(text)] = [(ALPHABET.find(c) % SYMBOLS) + 1 for c in text]
    return found


def _pad(
    lines: Sequence[Line], scale: float, steps: int, characters: int
) -> Strokes:
    points = np.zeros((len(lines), steps, 3), np.float32)
    valid = np.zeros((len(lines), steps), np.float32)
    for row, there, (_, way) in zip(points, valid, lines, strict=True):
        way = way[:steps]
        row[: len(way)] = way / [scale, scale, 1]
        there[: len(way)] = 1
    texts = [text for text, _ in lines]
    return Strokes(points, valid, encode(texts, characters))


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

    random, version = np.random.default_rng(seed), bible.Version.KING_JAMES
    verses = [
        bible.get_verse_text(bible.get_verse_id(book, chapter, verse), version)
        for book in (bible.Book.GENESIS, bible.Book.PSALMS, bible.Book.MATTHEW)
        for chapter in range(1, 25)
        for verse in range(1, 1 + bible.get_number_of_verses(book, chapter))
    ]
    order = random.permutation(len(verses))
    border = len(verses) * training // (training + test)
    parts = []
    for count, numbers in ((training, order[:border]), (test, order[border:])):
        drawn = (verses[random.choice(numbers)] for _ in range(count))
        texts = [_snippet(verse, random) for verse in drawn]
        parts.append([(text, draw(text, random)) for text in texts])
    return parts[0], parts[1]


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
        points.append(_ended(own))
    return np.concatenate(points).astype(np.float32)


def _ended(stroke: Any) -> np.ndarray:
    """Points (n, 2), with a third number that is 1 for the last point."""
    return np.c_[stroke, np.arange(len(stroke)) == len(stroke) - 1]


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


def lines(folder: Path, split: str) -> Iterator[Line]:
    """The texts and points (n, 3) of a split of IAM-OnDB.

    A point is x, y (up) and whether the stroke ends there.
    """
    forms = {path.stem: path for path in folder.glob("ascii/**/*.txt")}
    for line in files.read_text(folder / split, "latin-1").split():
        # A name stands for the forms of all writers, or for one of them.
        written = sorted(name for name in forms if name[:-1] == line)
        names = [line] if line in forms else written
        if not names:
            raise InputError(
                f"{folder / split} names the form {line}, but there is no "
                f"ascii/**/{line}*.txt"
            )
        for name in names:
            # The lines of a form are below the mark CSR.
            text = files.read_text(forms[name], "latin-1").partition("CSR:")[2]
            texts = [own.strip() for own in text.splitlines() if own.strip()]
            parents = forms[name].relative_to(folder / "ascii").parent
            strokes = folder / "lineStrokes" / parents
            paths = sorted(strokes.glob(f"{name}-*.xml"))
            if not paths:
                raise InputError(f"there is no {strokes}/{name}-*.xml")
            for path in paths:
                number = path.stem.rpartition("-")[2]
                if not number.isdigit() or not 0 < int(number) <= len(texts):
                    raise InputError(
                        f"{forms[name]} has {len(texts)} lines of text below "
                        f"CSR: and none for {path.name}"
                    )
                yield texts[int(number) - 1], read_strokes(path)


def read_strokes(path: Path) -> np.ndarray:
    """The points (n, 3) of a line; the y of the file points down."""
    try:
        ways = [
            [(float(p.attrib["x"]), -float(p.attrib["y"])) for p in points]
            for stroke in ET.fromstring(path.read_bytes()).iter("Stroke")
            if (points := [*stroke.iter("Point")])
        ]
        with np.errstate(over="ignore"):
            found = np.concatenate([*map(_ended, ways)]).astype(np.float32)
        if len(found) < 2 or not np.isfinite(found).all():
            raise ValueError("expected points that are finite in float32")
    except (ET.ParseError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} has no strokes of points x and y: {error!r}"
        ) from error
    return found
