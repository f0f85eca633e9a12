"""Cloze questions made from verses of the King James Bible."""

import collections
import functools
import itertools
import re
from collections.abc import Iterable, Sequence

from common.datasets import bible
from common.datasets.cloze import BLANK, Question

CONTEXT, LONGEST_QUERY = 20, 40  # Verses, words.
TRAINING_PART = 0.9

# A word, or a mark at the end of a part of a sentence.
WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|[.?!:;(]")
_BEFORE_A_CAPITAL = {".", "?", "!", ":", ";", "("}


@functools.cache
def ask() -> tuple[list[Question], list[Question]]:
    """Questions to train and to validate with: a verse without one name.

    The passage is the 20 verses before it. The last tenth of every book is
    for validation, passages included.
    """
    verses = bible.verses("kjv")
    words = [WORD.findall(verse.text) for verse in verses]
    names = find_names(words)
    texts = [
        [w if w in names else w.lower() for w in text if w[0].isalpha()]
        for text in words
    ]
    books: dict[str, list[list[str]]] = {}
    for verse, text in zip(verses, texts, strict=True):
        books.setdefault(verse.book, []).append(text)
    train, validation = [], []
    for book in books.values():
        border = int(TRAINING_PART * len(book))
        train += _questions_of(book[:border], names)
        validation += _questions_of(book[border:], names)
    return train, validation


def find_names(texts: Iterable[Sequence[str]]) -> frozenset[str]:
    """The words that always have a capital, also within sentences."""
    capital: collections.Counter[str] = collections.Counter()
    small = set()
    for text in texts:
        for before, word in zip(text, text[1:], strict=False):
            if word[0].isupper() and before not in _BEFORE_A_CAPITAL:
                capital[word] += 1
        small.update(word for word in text if word[0].islower())
    return frozenset(
        word
        for word, count in capital.items()
        if count > 1 and len(word) > 2 and word.lower() not in small
    )


def _questions_of(
    verses: list[list[str]], names: frozenset[str]
) -> list[Question]:
    """A question for each name in a verse that is also in the passage."""
    found = []
    for end in range(CONTEXT, len(verses)):
        verse, passage = verses[end], verses[end - CONTEXT : end]
        known = names.intersection(itertools.chain(*passage))
        if len(verse) > LONGEST_QUERY or len(known) < 2:
            continue
        for answer in sorted(known.intersection(verse)):
            query = [BLANK if word == answer else word for word in verse]
            found.append(Question(passage, query, answer, names))
    return found
