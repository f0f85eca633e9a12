"""Sequences for five everyday tasks, generated or from the King James Bible.

Letters: N examples, T steps.
"""

import collections
import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.datasets import bible, plain_text
from common.errors import InputError

# One out of SHARE groups is held out.
SHARE = 12


class Sequences(NamedTuple):
    """Inputs and targets; one group is in one part.

    Tokens are int32. In sequences of different lengths `plain_text.PADDING`
    follows the tokens, and zeros follow the numbers.
    """

    x: np.ndarray  # (N, T) tokens, or (N, T, numbers) float32
    y: np.ndarray  # (N,) classes, (N, steps) tokens, or (N, 1) float32
    groups: np.ndarray  # (N,) numbers of groups of related examples
    test_x: np.ndarray
    test_y: np.ndarray
    tokens: Sequence[str] | None = None  # by number
    # If every seed tests a different group: the group of each test example, and
    # inputs and targets of groups that are in no part.
    test_groups: np.ndarray | None = None
    judges: tuple[np.ndarray, np.ndarray] | None = None

    def held_out(self) -> "Sequences":
        """Only the training part, a twelfth of its groups for testing.

        If there are `judges`, all of the training part, with them for testing.
        """
        own = (self.x, self.y, self.groups)
        if self.judges is not None:
            return Sequences(*own, *self.judges, self.tokens)
        return split(*own, self.tokens)

    def fold(self, seed: int) -> "Sequences":
        """The same sequences with the test group of a seed.

        Numbers get mean 0 and deviation 1 in the training part.
        """
        if self.test_groups is None:
            return self
        parts = zip(self[:3], (*self[3:5], self.test_groups), strict=True)
        x, y, groups = map(np.concatenate, parts)
        names = np.unique(groups)
        test = groups == names[seed % len(names)]
        judging, wanted = self.judges
        learnt, tested, judging = _scaled(x[~test], x[test], judging)
        return Sequences(
            *(learnt, y[~test], groups[~test], tested, y[test]),
            *(self.tokens, groups[test], (judging, wanted)),
        )


def _scaled(learnt: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Arrays (N, T, numbers), so that the first has mean 0 and deviation 1.

    Zeros that follow a sequence stay zero. Scaling twice gives the result of
    the second scaling.
    """
    steps = learnt[learnt.any(axis=-1)].astype(np.float64)
    mean, deviation = steps.mean(axis=0), steps.std(axis=0)
    parts = [(x, x.any(axis=-1, keepdims=True)) for x in (learnt, *others)]
    return [
        np.float32(np.where(there, (x - mean) / deviation, 0))
        for x, there in parts
    ]


def split(x, y, groups, tokens=None) -> Sequences:
    """A twelfth of the groups for testing."""
    test = _tested(groups)
    return Sequences(
        x[~test], y[~test], groups[~test], x[test], y[test], tokens
    )


def _tested(groups: np.ndarray) -> np.ndarray:
    """Which examples (N,) are in the groups that are held out."""
    names = np.unique(groups)
    order = np.random.default_rng(0).permutation(names)
    return np.isin(groups, order[: -(-len(names) // SHARE)])


DIGITS = 3


def addition(count: int) -> Sequences:
    """Sums of two numbers, as keras.io's "number addition" writes them.

    The question, such as "12+345 ", is read backwards. No two questions have
    the same numbers.
    """
    # Of the 10**DIGITS (10**DIGITS + 1) / 2 pairs the last are rarely drawn.
    most = 10 ** (2 * DIGITS) // 4
    if count > most:
        raise InputError(
            f"--examples: expected at most {most}, received {count}: there are "
            f"few more sums of two numbers of {DIGITS} digits"
        )
    drawn = random.Random(0)
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    while len(pairs) < count:
        a, b = (drawn.randrange(10 ** drawn.randint(1, DIGITS)) for _ in "ab")
        pairs.setdefault((min(a, b), max(a, b)), (a, b))
    tokens = tuple(" +0123456789")
    questions = [
        f"{a}+{b}".ljust(2 * DIGITS + 1)[::-1] for a, b in [*pairs.values()]
    ]
    answers = [str(a + b).ljust(DIGITS + 1) for a, b in pairs.values()]
    x, y = _encoded(questions, tokens), _encoded(answers, tokens)
    return split(x, y, np.arange(count), tokens)


STEPS = 64


def characters(count: int) -> Sequences:
    """Pieces of the King James Bible; the target is the next character.

    Pieces have no character in common, and a chapter is a group.
    """
    chapters = collections.defaultdict(list)
    for verse in bible.verses("kjv"):
        chapters[verse.book, verse.chapter].append(verse.text)
    texts = ["\n".join(verses) for verses in chapters.values()]
    tokens = tuple(sorted(set("".join(texts))))
    pieces = [
        (text[start : start + STEPS + 1], group)
        for group, text in enumerate(texts)
        for start in range(0, len(text) - STEPS, STEPS + 1)
    ]
    pieces = _spread(pieces, count)
    numbers = _encoded([text for text, _ in pieces], tokens)
    groups = np.array([group for _, group in pieces])
    return split(numbers[:, :-1], numbers[:, 1:], groups, tokens)


LENGTH = 200


def long_memory(count: int) -> Sequences:
    """The adding problem of Hochreiter and Schmidhuber (1997).

    The first number of every pair is between 0 and 1, and the second number
    marks two pairs, one in each half. The target is the sum of their first
    numbers.
    """
    drawn = np.random.default_rng(0)
    x = np.zeros((count, LENGTH, 2), np.float32)
    x[..., 0] = drawn.random((count, LENGTH))
    rows, half = np.arange(count), LENGTH // 2
    for start in (0, half):
        x[rows, start + drawn.integers(half, size=count), 1] = 1
    y = (x[..., 0] * x[..., 1]).sum(axis=1, keepdims=True)
    return split(x, y, rows)


BOOKS, WORDS, MOST_WORDS = 10, 2_000, 40


def verses(count: int) -> Sequences:
    """Verses of the ten longest books; the target is the book's number.

    The words are from the training part, and chapters are groups.
    """
    found = bible.verses("kjv")
    sizes = collections.Counter(verse.book for verse in found)
    books = [book for book, _ in sizes.most_common(BOOKS)]
    chosen = _spread([verse for verse in found if verse.book in books], count)
    y = np.array([books.index(verse.book) for verse in chosen], np.int32)
    groups = 1_000 * y + [verse.chapter for verse in chosen]
    texts = [plain_text.tokens(verse.text) for verse in chosen]
    counts: collections.Counter[str] = collections.Counter()
    for words, test in zip(texts, _tested(groups), strict=True):
        counts.update(() if test else words)
    known = [word for word, _ in counts.most_common(WORDS)]
    tokens = (*plain_text.MARKS, *known)
    index = {word: number for number, word in enumerate(tokens)}
    x = np.zeros((len(texts), MOST_WORDS + 1), np.int32)
    for row, words in zip(x, texts, strict=True):
        numbers = plain_text.encode(words, index, MOST_WORDS)
        row[: len(numbers)] = numbers
    return split(x, y, groups, tokens)


# The values that are seen, and the steps from the last one to the target.
SEEN, AHEAD = 64, 50
DELAY, PER_UNIT, START = 17, 10, 300
# The number of windows of each series, and the units between them.
WINDOWS, APART = 10, 10
# The mean and deviation of the equation's values.
MEAN, DEVIATION = 0.93, 0.23


def forecast(count: int) -> Sequences:
    """Series of Mackey and Glass (1977) and their values 50 units later.

    They are in units of their deviation. Windows of one series are a group.
    """
    length = SEEN + AHEAD + (WINDOWS - 1) * APART
    series = mackey_glass(-(-count // WINDOWS), length)
    series = np.float32((series - MEAN) / DEVIATION)
    starts = np.arange(WINDOWS) * APART
    x = series[:, starts[:, None] + np.arange(SEEN)]
    y = series[:, starts + SEEN - 1 + AHEAD]
    groups = np.repeat(np.arange(len(series)), WINDOWS)[:count]
    x, y = x.reshape(-1, SEEN, 1), y.reshape(-1, 1)
    return split(x[:count], y[:count], groups)


def mackey_glass(count: int, length: int) -> np.ndarray:
    """Series (count, length) of x' = 0.2 x_17 / (1 + x_17^10) - 0.1 x.

    x_17 is the value 17 units before. Each series starts from a constant, and
    its first 300 units are left out.
    """
    delay, step = DELAY * PER_UNIT, 1 / PER_UNIT
    levels = np.random.default_rng(0).uniform(0.5, 1.3, size=count)
    x = np.empty((delay + 1 + (START + length) * PER_UNIT, count))
    x[: delay + 1] = levels
    for n in range(delay, len(x) - 1):
        before, after = x[n - delay], x[n - delay + 1]

        def slope(now, past):
            return 0.2 * past / (1 + past**10) - 0.1 * now

        # Heun's method.
        first = slope(x[n], before)
        second = slope(x[n] + step * first, after)
        x[n + 1] = x[n] + step / 2 * (first + second)
    return x[delay + (START + 1) * PER_UNIT :: PER_UNIT].T


def _encoded(texts: Sequence[str], tokens: Sequence[str]) -> np.ndarray:
    """The numbers (N, T) of the characters of texts of one length."""
    index = {token: number for number, token in enumerate(tokens)}
    return np.array([[index[c] for c in text] for text in texts], np.int32)


def _spread(examples: list, count: int) -> list:
    """`count` of the examples, or all, at equal distances."""
    places = np.arange(min(count, len(examples))) * len(examples)
    return [examples[n] for n in places // min(count, len(examples))]
