"""Tasks that measure sentence vectors, from their published files.

`FILES` has their names. Any other NAME is a task with NAME.pos and NAME.neg,
with one sentence per line. They are in UTF-8 or, as some of them are, Latin-1.
"""

import functools
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import files
from common.datasets import bible
from common.errors import InputError

# Of sentences of two kinds, the file of label 1 and the one of label 0.
FILES = {
    "sick": ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"),
    "mr": ("rt-polarity.pos", "rt-polarity.neg"),
    "cr": ("custrev.pos", "custrev.neg"),
    "subj": ("quote.tok.gt9.5000", "plot.tok.gt9.5000"),
    "mpqa": ("mpqa.pos", "mpqa.neg"),
}

# Fewer would leave folds of a nested 10-fold split without a label.
FEWEST_OF_A_LABEL = 12

ALIGNED_VERSES = 1_000
CLASSIFIED_BOOKS, VERSES_OF_A_BOOK = 10, 100

_SICK_COLUMNS = ("sentence_A", "sentence_B", "relatedness_score")


class Pairs(NamedTuple):
    """Pairs of sentences and how related people found them, from 1 to 5."""

    first: list[str]
    second: list[str]
    scores: np.ndarray  # (N,) float64


class Sick(NamedTuple):
    """Sentences involving compositional knowledge (Marelli et al., 2014)."""

    train: Pairs
    trial: Pairs
    test: Pairs


class Labelled(NamedTuple):
    """Sentences of two kinds."""

    sentences: list[str]
    labels: np.ndarray  # (N,) int, 0 or 1


def load(folder: Path, names: Sequence[str]) -> dict[str, Sick | Labelled]:
    """Reads tasks from the folder of their files, or its subfolders."""
    if not folder.is_dir():
        raise InputError(f"--eval-dir: {folder} is no folder")
    tasks: dict[str, Sick | Labelled] = {}
    for name in names:
        wanted = FILES.get(name, (f"{name}.pos", f"{name}.neg"))
        found = []
        for file in wanted:
            paths = sorted(p for p in folder.rglob(file) if p.is_file())
            if not paths:
                raise InputError(
                    f"--eval-dir: {folder} has no {file}, which the task "
                    f"{name} needs; --eval-tasks names the tasks to run"
                )
            found.append(paths[0])
        sick = name == "sick"
        tasks[name] = (
            Sick(*map(read_sick, found)) if sick else _labelled(*found)
        )
    return tasks


def read_sick(path: Path) -> Pairs:
    """Reads pairs from a table with tabs; its first line names the columns."""
    first, second, scores = [], [], []
    heading, *lines = files.read_text(path, "latin-1").split("\n")
    heading = heading.split("\t")
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        cells = line.split("\t")
        row = dict(zip(heading, cells, strict=False))
        try:
            texts = [row[name].strip() for name in _SICK_COLUMNS]
            score = float(texts[2])
        except (KeyError, ValueError):
            score = math.nan
        if len(cells) != len(heading) or not 1 <= score <= 5:
            raise InputError(
                f"{path}, line {number}: expected {', '.join(_SICK_COLUMNS)} "
                "(from 1 to 5) below their names in line 1, with tabs between "
                f"them, received {line!r}"
            )
        first.append(texts[0])
        second.append(texts[1])
        scores.append(score)
    if len(set(scores)) < 2:
        raise InputError(f"{path} needs pairs with at least 2 different scores")
    return Pairs(first, second, np.array(scores))


def _labelled(*paths: Path) -> Labelled:
    sentences: list[str] = []
    labels = []
    for label, path in zip((1, 0), paths, strict=True):
        # Not `splitlines`, which also splits at rarer characters of a sentence.
        lines = files.read_text(path, "latin-1").split("\n")
        own = [line.strip() for line in lines if line.strip()]
        if len(own) < FEWEST_OF_A_LABEL:
            raise InputError(
                f"{path} has {len(own)} sentences; nested 10-fold "
                f"cross-validation needs at least {FEWEST_OF_A_LABEL}"
            )
        sentences += own
        labels += len(own) * [label]
    return Labelled(sentences, np.array(labels))


def read_word_vectors(
    path: Path, wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """Reads the vectors of the wanted words from word2vec's text format.

    The first line has the number of words and the size of a vector, each
    further line a word and its numbers. Words also match in lower case; the
    first spelling of a word counts.
    """
    vectors: dict[str, np.ndarray] = {}
    number = 1
    try:
        with path.open("rb") as file:
            count, size = map(int, file.readline().split())
            for number, line in enumerate(file, 2):
                # Words may have any byte except a space.
                name, *numbers = line.rstrip(b" \r\n").split(b" ")
                word = name.decode("utf-8", errors="replace").lower()
                if len(numbers) != size:
                    raise ValueError(f"{len(numbers)} numbers in line {number}")
                if word in wanted and word not in vectors:
                    vectors[word] = np.asarray_chkfinite(numbers, np.float32)
            if number - 1 != count or not size:
                raise ValueError(f"{number - 1} words")
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as word2vec's text format "
            "(the number of words and the size of their vectors, then a word "
            f"and its finite numbers a line): {error}"
        ) from error
    return vectors


class Verses(NamedTuple):
    """The evaluation data of the embedded text."""

    king_james: list[str]
    world_english: list[str]  # the same verses in the same order
    classified: list[str]
    labels: np.ndarray  # the books that these are from

    def every(self, step: int) -> "Verses":
        """One of `step` verses."""
        return Verses(*(part[::step] for part in self))


@functools.cache
def bible_verses() -> Verses:
    """Verses in both versions, and verses of the longest books."""
    random = np.random.default_rng(0)
    verses = [
        {verse[:3]: verse.text for verse in bible.verses(version)}
        for version in ("kjv", "web")
    ]
    numbers = [n for n in verses[0] if n in verses[1]]
    chosen = random.choice(len(numbers), ALIGNED_VERSES, replace=False)
    pair = [[own[numbers[i]] for i in chosen] for own in verses]
    by_book: dict[str, list[str]] = {}
    for (book, _, _), text in verses[0].items():
        by_book.setdefault(book, []).append(text)
    most = sorted(by_book.values(), key=len, reverse=True)[:CLASSIFIED_BOOKS]
    drawn = [random.choice(own, VERSES_OF_A_BOOK, False) for own in most]
    classified = [text for own in drawn for text in own]
    labels = np.repeat(np.arange(CLASSIFIED_BOOKS), VERSES_OF_A_BOOK)
    return Verses(*pair, classified, labels)
