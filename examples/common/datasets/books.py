"""Plain text as triples of neighbouring sentences.

Kiros et al., "Skip-Thought Vectors" (2015). Letters: N sentences, L the most
words of one, B batch.
"""

import collections
import itertools
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import files
from common.datasets import bible, plain_text
from common.errors import InputError

# Few lengths, because each length is compiled.
STEPS = 4

# The share of every text, at its end, that is held out, and the most sentences.
HELD_OUT, MOST_HELD_OUT = 0.05, 2_048


class Books(NamedTuple):
    """Sentences in order, and the numbers of those between two others.

    A row of `sentences` has the words of a sentence and END, or only the first
    words of a longer sentence, and then PADDING.
    """

    words: tuple[str, ...]  # by number, from MARKS on
    sentences: np.ndarray  # (N, L + 1)
    train: np.ndarray  # numbers of the middle sentences to learn from
    test: np.ndarray  # and of the held-out ones

    @property
    def known(self) -> int:
        """The number of words that are known."""
        return len(self.words) - len(plain_text.MARKS)

    def first(self, count: int) -> "Books":
        """The first sentences; the last few of them are held out."""
        middle = np.union1d(self.train, self.test)
        middle = middle[middle < count - 1]
        train, test = _hold_out(middle, max(1, len(middle) // 100))
        return self._replace(
            sentences=self.sentences[:count], train=train, test=test
        )

    def held_out(self) -> "Books":
        """Only the training sentences, a tenth of them held out.

        The held-out runs have no sentence in common with the rest.
        """
        run = max(1, min(100, len(self.train) // 10))
        place = np.arange(len(self.train)) // run % 10
        test = self.train[place == 9][:MOST_HELD_OUT]
        near = np.unique(test[:, None] + np.arange(-2, 3))
        return self._replace(train=np.setdiff1d(self.train, near), test=test)


def load(args: Namespace) -> Books:
    """Loads the text of --data: the King James Bible, a file or a folder."""
    if args.data == "embedded":
        texts = king_james()
    elif args.data == "tfds":
        raise InputError(
            "--data: expected embedded or the path of a text file or of a "
            "folder of them, because the paper's books are not published, "
            "received tfds"
        )
    else:
        path = Path(args.data)
        found = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        if not found:
            raise InputError(f"--data: {path} has no .txt files")
        texts = {str(own): files.read_text(own).split("\n") for own in found}
    return build(texts, args.vocabulary, args.length)


def king_james() -> dict[str, list[str]]:
    """The lines of the books of the King James Bible."""
    texts: dict[str, list[str]] = {}
    for verse in bible.verses("kjv"):
        texts.setdefault(verse.book, []).append(verse.text)
    return texts


def build(
    texts: Mapping[str, Sequence[str]], vocabulary: int, max_words: int
) -> Books:
    """Finds the most frequent training words and numbers the sentences."""
    sizes = []
    for name, lines in texts.items():
        size = sum(1 for _ in plain_text.sentences(lines))
        if size < 3:
            raise InputError(
                f"{name}: expected at least 3 sentences, received {size}"
            )
        sizes.append(size)
    train, test = _split(sizes)
    held_out = {int(n) + k for n in test for k in (-1, 0, 1)}
    counts: collections.Counter[str] = collections.Counter()
    for number, sentence in enumerate(_all_sentences(texts)):
        if number not in held_out:
            counts.update(sentence)
    known = sorted(counts, key=lambda word: (-counts[word], word))[:vocabulary]
    words = (*plain_text.MARKS, *known)
    index = {word: number for number, word in enumerate(words)}
    shape = (sum(sizes), max_words + 1)
    rows = np.zeros(shape, np.min_scalar_type(len(words) - 1))
    for row, sentence in zip(rows, _all_sentences(texts), strict=True):
        numbers = plain_text.encode(sentence, index, max_words)
        row[: len(numbers)] = numbers
    return Books(words, rows, train, test)


def _all_sentences(texts: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    return (s for lines in texts.values() for s in plain_text.sentences(lines))


def _split(sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The middle sentences of texts; the held-out ones end each text.

    Texts that are too short for an end of their own are held out whole, in
    the same share.
    """
    total = sum(size - 2 for size in sizes)
    share = min(HELD_OUT, MOST_HELD_OUT / total)
    parts, start, owed = [], 0, 0.0
    for size in sizes:
        middle = np.arange(start + 1, start + size - 1)
        count = int(share * len(middle))
        if not count:
            owed += share * len(middle)
            if owed >= len(middle):
                count = len(middle)
                owed -= count
        parts.append(_hold_out(middle, count))
        start += size
    if not any(len(test) for _, test in parts):  # The end of the last text.
        parts[-1] = _hold_out(parts[-1][0], max(1, int(owed)))
    train, test = map(np.concatenate, zip(*parts, strict=True))
    return train, test


def _hold_out(middle: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last middle sentences, without a sentence in common.

    The two middle sentences before the held-out ones have neighbours in both
    parts, so they are left out.
    """
    if not count:
        return middle, middle[:0]
    test = middle[-count:]
    return middle[middle < test[0] - 2], test


def groups(books: Books, batch_size: int) -> list[np.ndarray]:
    """The middle training sentences of each length with a whole batch."""
    lengths = np.count_nonzero(books.sentences[books.train], axis=1)
    found = (books.train[lengths == n] for n in np.unique(lengths))
    return [own for own in found if len(own) >= batch_size]


def batches(
    books: Books, batch_size: int, seed: int, updates_per_pass: int, first: int
) -> Iterator[tuple]:
    """Endless batches of `triples` whose middle sentences are equally long.

    In every pass the sentences of each length are shuffled and cut into whole
    batches, and the batches of all lengths are shuffled: a function of seed and
    step. The middle sentences are padded only to a multiple of `STEPS`.
    """
    own = groups(books, batch_size)
    skipped = first % updates_per_pass
    for number in itertools.count(first // updates_per_pass):
        random = np.random.default_rng((seed, number))
        mixed = [random.permutation(numbers) for numbers in own]
        whole = [part[: len(part) // batch_size * batch_size] for part in mixed]
        rows = np.concatenate(whole).reshape(-1, batch_size)
        for chosen in random.permutation(rows)[skipped:updates_per_pass]:
            length = np.count_nonzero(books.sentences[chosen[0]])
            yield triples(books.sentences, chosen, length + -length % STEPS)
        skipped = 0


def triples(
    table: np.ndarray, numbers: np.ndarray, length: int | None = None
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """The elements for `model.fit` of middle sentences `numbers` (B,).

    Returns:
        Of the sentences in `table` (N, L + 1) the middle ones (B, length) with
        the words before each word of the previous and of the next sentence
        (B, L + 1), 0 before the first; these words (B, 2 L + 2); and their
        weights, 0 for padding.
    """
    current, before, after = (table[numbers + i] for i in (0, -1, 1))
    current, before, after = map(np.int32, (current, before, after))
    targets = np.concatenate([before, after], axis=1)
    weights = np.float32(targets != plain_text.PADDING)
    shifted = (np.pad(x[:, :-1], [(0, 0), (1, 0)]) for x in (before, after))
    return (current[:, :length], *shifted), targets, weights


def updates_per_pass(args: Namespace, text: Books) -> int:
    """The batches of a pass, down to a multiple of --evaluate-every."""
    size, every = args.batch_size, args.evaluate_every
    updates = sum(len(own) // size for own in groups(text, size))
    return updates - (updates % every if every and every <= updates else 0)
