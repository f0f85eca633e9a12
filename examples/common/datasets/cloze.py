"""Cloze questions: a passage, and a query with an entity to name.

Entities are anonymous markers whose numbers mean nothing: every question gets
new markers in every batch, so that only reading the passage helps.

The questions of Hermann et al., "Teaching Machines to Read and Comprehend"
(2015), about news of CNN or the Daily Mail are published as

    questions/{training,validation,test}/<hash>.question

one file per question, of five parts with blank lines between: an address, the
passage, the query with @placeholder in place of an entity, the answer, and a
line `@entity0:Name` for every entity.
"""

import collections
import itertools
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common import devices, files, runs
from common.errors import InputError

BLANK = "@placeholder"
HOMEPAGE = "https://cs.nyu.edu/~kcho/DMQA/"

# The first numbers of every vocabulary. The blank is 2; markers
# follow, then words.
PADDING, UNKNOWN, FIRST_MARKER = 0, 1, 3


class Question(NamedTuple):
    """A question in words."""

    sentences: Sequence[Sequence[str]]  # The passage.
    query: Sequence[str]
    answer: str
    entities: frozenset[str]  # The words that are entities.

    @property
    def passage(self) -> list[str]:
        """The words of all sentences."""
        return [*itertools.chain(*self.sentences)]

    @property
    def used(self) -> list[str]:
        """The entities that occur, each once, in order."""
        words = (*self.passage, *self.query)
        return list(dict.fromkeys(w for w in words if w in self.entities))


class Questions(NamedTuple):
    """Questions in numbers, 0 after the end of the shorter texts."""

    passages: np.ndarray  # (N, T) int32
    queries: np.ndarray  # (N, Q) int32
    answers: np.ndarray  # (N,) int32

    @property
    def fed(self) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Inputs and targets for `model.fit`."""
        return (self.passages, self.queries), self.answers


class Cloze(NamedTuple):
    """Questions to learn from and to validate with."""

    train: Questions
    validation: Questions
    markers: int  # E: they have the numbers 3 to 3 + E - 1.
    vocabulary: list[str]


def load(args: Namespace) -> Cloze:
    """Loads the questions of --data.

    Passages are cut to `args.sentences` and `args.length`. Questions are left
    out if the cut passage lacks their answer or if they have more than
    `args.entities`. The `args.words` most frequent words of the rest are known.
    """
    if args.data == "embedded":
        from common.datasets import verse_questions

        parts = verse_questions.ask()
    else:
        folder = Path(args.data) / "questions"
        if not folder.is_dir():
            raise InputError(
                "--data: expected a folder with the folder questions of CNN or "
                f"of the Daily Mail in it ({HOMEPAGE}), received {args.data}"
            )
        parts = [read(folder / name) for name in ("training", "validation")]
    cut = [
        [shorten(question, args.sentences, args.length) for question in part]
        for part in parts
    ]
    answered = [[q for q in part if q.answer in q.passage] for part in cut]
    few = args.entities
    kept = [[q for q in part if len(q.used) <= few] for part in answered]
    if not all(kept):
        raise InputError(
            f"{args.data}: no question is left with its answer in --sentences "
            f"{args.sentences} and --length {args.length} of its passage, and "
            f"at most --entities {few}"
        )
    given, able, used = (sum(map(len, own)) for own in (cut, answered, kept))
    print(
        f"Data: {len(kept[0])} questions for training and {len(kept[1])} for "
        f"validation; without {given - able} whose answer is not in the cut "
        f"passage, and {able - used} with more than {few} entities."
    )
    found = encode(*kept, words=args.words)
    train, validation = found.train, found.validation
    if args.smoke:
        train = Questions(*(part[:256] for part in train))
        validation = Questions(*(part[:128] for part in validation))
    validation = Questions(*devices.even(args, *validation))
    return found._replace(train=train, validation=validation)


def read(folder: Path) -> list[Question]:
    """The questions of a folder."""
    paths = sorted(folder.glob("*.question"))
    if not paths:
        raise InputError(f"there is no {folder}/*.question")
    return [_read(path) for path in paths]


def _read(path: Path) -> Question:
    text = files.read_text(path)
    parts = [part.strip() for part in text.rstrip().split("\n\n")]
    if len(parts) != 5 or not all(parts):
        raise InputError(
            f"{path}: expected five parts with blank lines between (address, "
            f"passage, query, answer, entities), received {len(parts)}, of "
            f"which {parts.count('')} are empty"
        )
    _, passage, query, answer, names = parts
    entities = {line.partition(":")[0].strip() for line in names.splitlines()}
    if not all(entity.startswith("@entity") for entity in entities):
        raise InputError(
            f"{path}: expected lines such as @entity0:Name at its end"
        )
    if BLANK not in query.split() or answer not in entities:
        raise InputError(
            f"{path}: expected {BLANK} in the query and an answer among the "
            f"entities, received {query!r} and {answer!r}"
        )
    sentences: list[list[str]] = [[]]
    for word in passage.split():
        sentences[-1].append(word)
        if word in (".", "?", "!"):
            sentences.append([])
    sentences = [sentence for sentence in sentences if sentence]
    return Question(sentences, query.split(), answer, frozenset(entities))


def shorten(question: Question, sentences: int, length: int) -> Question:
    """Keeps the sentences with the most different words of the query.

    Among equals it keeps the earlier sentence. The sentences stay in their
    order.
    """
    query = set(question.query)
    order = sorted(
        range(len(question.sentences)),
        key=lambda i: -len(query.intersection(question.sentences[i])),
    )
    left = [question.sentences[i] for i in sorted(order[:sentences])]
    words = question._replace(sentences=left).passage
    return question._replace(sentences=[words[:length]])


def encode(
    train: Sequence[Question], validation: Sequence[Question], words: int
) -> Cloze:
    """Numbers words and entities."""
    counts = collections.Counter(
        word
        for question in train
        for word in (*question.passage, *question.query)
        if word not in question.entities and word != BLANK
    )
    parts = (train, validation)
    markers = max(len(question.used) for part in parts for question in part)
    known = [word for word, _ in counts.most_common(words)]
    names = [f"@entity{i}" for i in range(markers)]
    vocabulary = ["", "@unknown", BLANK, *names, *known]
    numbers = {word: i for i, word in enumerate(vocabulary)}
    sizes = [
        max(len(getattr(q, text)) for part in parts for q in part)
        for text in ("passage", "query")
    ]
    random = np.random.default_rng(0)
    encoded = []
    for part in parts:
        filled = Questions(
            *(np.full((len(part), n), PADDING, np.int32) for n in sizes),
            np.zeros(len(part), np.int32),
        )
        for i, question in enumerate(part):
            chosen = FIRST_MARKER + random.permutation(markers)
            own = dict(zip(question.used, chosen, strict=False))
            for row, text in (
                (filled.passages[i], question.passage),
                (filled.queries[i], question.query),
            ):
                row[: len(text)] = [
                    own.get(word) or numbers.get(word, UNKNOWN) for word in text
                ]
            filled.answers[i] = own[question.answer]
        encoded.append(filled)
    return Cloze(*encoded, markers, vocabulary)


def batches(
    questions: Questions, markers: int, size: int, seed: int, first: int
) -> Iterator[Any]:
    """Batches in which the entities of every question have new markers.

    Questions and markers are a function of seed and update, from update `first`
    on; there are `markers` of them.
    """
    numbers = runs.shuffled(len(questions.answers), size, seed, first)
    for update, rows in enumerate(numbers, first):
        random = np.random.default_rng((seed, 1, update))
        own = np.arange(markers, dtype=np.int32)
        own = random.permuted(np.tile(own, (size, 1)), axis=1)
        new = FIRST_MARKER + own  # (B, E)

        def renumber(numbers, new=new):  # (B, any)
            marker = numbers - FIRST_MARKER
            known = (marker >= 0) & (marker < markers)
            found = np.take_along_axis(new, np.where(known, marker, 0), axis=1)
            return np.where(known, found, numbers)

        passages, queries, answers = (part[rows] for part in questions)
        answers = renumber(answers[:, None])[:, 0]
        yield (renumber(passages), renumber(queries)), answers
