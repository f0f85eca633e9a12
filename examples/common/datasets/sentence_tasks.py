"""Tasks that measure sentence vectors, from their published files.

| task | files                                                          |
|------|----------------------------------------------------------------|
| sick | SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt        |
| mr   | rt-polarity.pos, rt-polarity.neg                               |
| cr   | custrev.pos, custrev.neg                                       |
| subj | quote.tok.gt9.5000 (subjective), plot.tok.gt9.5000 (objective) |
| mpqa | mpqa.pos, mpqa.neg                                             |

Any other NAME is a task with NAME.pos and NAME.neg, with one sentence per line.
"""

import functools
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.datasets import bible
from common.errors import InputError

SICK_FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
# The file of label 1 and the one of label 0.
LABELLED_FILES = {
    "mr": ("rt-polarity.pos", "rt-polarity.neg"),
    "cr": ("custrev.pos", "custrev.neg"),
    "subj": ("quote.tok.gt9.5000", "plot.tok.gt9.5000"),
    "mpqa": ("mpqa.pos", "mpqa.neg"),
}
TASKS = ("sick", *LABELLED_FILES)

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
        if name == "sick":
            files = [_find(folder, file, name) for file in SICK_FILES]
            tasks[name] = Sick(*map(read_sick, files))
        else:
            own = LABELLED_FILES.get(name, (f"{name}.pos", f"{name}.neg"))
            files = [_find(folder, file, name) for file in own]
            tasks[name] = _labelled(*files)
    return tasks


def _find(folder: Path, file: str, task: str) -> Path:
    found = sorted(path for path in folder.rglob(file) if path.is_file())
    if not found:
        raise InputError(
            f"--eval-dir: {folder} has no {file}, which the task {task} "
            "needs; --eval-tasks names the tasks to run"
        )
    return found[0]


def read_sick(path: Path) -> Pairs:
    """Reads pairs from a table with tabs; its first line names the columns."""
    lines = _lines(path)
    heading = next(lines, (1, ""))[1].split("\t")
    missing = [name for name in _SICK_COLUMNS if name not in heading]
    if missing:
        raise InputError(
            f"{path}, line 1: expected the names of columns with tabs between "
            f"them, among them {missing[0]}"
        )
    places = [heading.index(name) for name in _SICK_COLUMNS]
    pairs = Pairs([], [], np.zeros(0))
    scores = []
    for number, line in lines:
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(heading):
            raise InputError(
                f"{path}, line {number}: expected {len(heading)} columns with "
                f"tabs between them, received {len(cells)}"
            )
        first, second, score = (cells[place].strip() for place in places)
        pairs.first.append(first)
        pairs.second.append(second)
        scores.append(_score(score, f"{path}, line {number}"))
    if len(set(scores)) < 2:
        raise InputError(f"{path} needs pairs with at least 2 different scores")
    return pairs._replace(scores=np.array(scores))


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 1 <= score <= 5:
        raise InputError(
            f"{where}: expected a relatedness score from 1 to 5, received "
            f"{text!r}"
        )
    return score


def _labelled(*paths: Path) -> Labelled:
    sentences: list[str] = []
    labels = []
    for label, path in zip((1, 0), paths, strict=True):
        own = [line.strip() for _, line in _lines(path) if line.strip()]
        if len(own) < FEWEST_OF_A_LABEL:
            raise InputError(
                f"{path} has {len(own)} sentences; nested 10-fold "
                f"cross-validation needs at least {FEWEST_OF_A_LABEL}"
            )
        sentences += own
        labels += len(own) * [label]
    return Labelled(sentences, np.array(labels))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of UTF-8 or, as some of these files are, Latin-1."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if b"\0" in content:
        raise InputError(
            f"{path}: expected UTF-8, received a byte of 0; convert the file "
            "to UTF-8"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    # Not `splitlines`, which also splits at rarer characters of a sentence.
    lines = text.replace("\r\n", "\n").split("\n")
    yield from enumerate(lines, 1)


def read_word_vectors(
    path: Path, wanted: Collection[str]
) -> dict[str, np.ndarray]:
    """Reads the vectors of the wanted words from word2vec's text format.

    The first line has the number of words and the size of a vector, each
    further line a word and its numbers. Words also match in lower case; the
    first spelling of a word counts.
    """
    vectors: dict[str, np.ndarray] = {}
    try:
        with path.open("rb") as file:
            count, size = _header(path, file.readline())
            number = 1
            for number, line in enumerate(file, 2):
                # Words may have any byte except a space.
                parts = line.rstrip(b" \r\n").split(b" ")
                if len(parts) != size + 1:
                    raise InputError(
                        f"{path}, line {number}: expected a word and {size} "
                        f"numbers, received {len(parts) - 1}"
                    )
                word = parts[0].decode("utf-8", errors="replace").lower()
                if word in wanted and word not in vectors:
                    vectors[word] = _vector(parts[1:], f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if number - 1 != count:
        raise InputError(
            f"{path} says that it has {count} words and has {number - 1}"
        )
    return vectors


def _header(path: Path, line: bytes) -> tuple[int, int]:
    try:
        count, size = map(int, line.split())
    except ValueError:
        count = size = 0
    if count < 1 or size < 1:
        raise InputError(
            f"{path}, line 1: expected the number of words and the size of "
            "their vectors, as word2vec's text format has them"
        )
    return count, size


def _vector(parts: Sequence[bytes], where: str) -> np.ndarray:
    try:
        vector = np.array([float(part) for part in parts], np.float32)
    except ValueError:
        vector = np.full(1, np.nan)
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: expected finite numbers after the word")
    return vector


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
    classified = [
        text
        for own in most
        for text in random.choice(own, VERSES_OF_A_BOOK, replace=False)
    ]
    labels = np.repeat(np.arange(CLASSIFIED_BOOKS), VERSES_OF_A_BOOK)
    return Verses(*pair, classified, labels)
