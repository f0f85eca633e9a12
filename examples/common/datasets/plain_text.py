"""Plain text as sentences, their words, and the words' numbers."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

# The first three numbers; the numbers of words follow.
PADDING, END, UNKNOWN = 0, 1, 2
MARKS = ("<pad>", "<end>", "<unknown>")

# Accents, vowels of some scripts, and characters that join or part letters.
_COMBINING = "\u200c\u200d" + "".join(
    c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M"
)
_WORD = rf"[^\W_]+(?:[{_COMBINING}]+[^\W_]*)*"
_TOKEN = re.compile(rf"{_WORD}(?:['’-]{_WORD})*|[^\w\s]")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*$")
_ABBREVIATIONS = {"mr.", "mrs.", "ms.", "dr.", "st.", "messrs.", "vol.", "no."}


def sentences(lines: Iterable[str]) -> Iterator[list[str]]:
    """The words of one sentence after the other.

    A sentence ends with a full stop, a question or exclamation mark before a
    space, or with a blank line; other line breaks mean nothing.
    """
    sentence: list[str] = []
    for line in lines:
        parts = line.split()
        for part in parts:
            sentence += tokens(part)
            ends = _SENTENCE_END.search(part)
            if ends and sentence and part.lower() not in _ABBREVIATIONS:
                yield sentence
                sentence = []
        if not parts and sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def tokens(text: str) -> list[str]:
    """Words in lower case, and punctuation marks."""
    return _TOKEN.findall(unicodedata.normalize("NFC", text.lower()))


def encode(
    sentence: Sequence[str],
    index: Mapping[str, int],
    max_words: int | None = None,
) -> list[int]:
    """The numbers of words and END; no END if there are too many words.

    >>> encode(["a", "rose", "is"], {"a": 3, "is": 4})
    [3, 2, 4, 1]
    >>> encode(["a", "rose", "is"], {"a": 3, "is": 4}, max_words=2)
    [3, 2]
    """
    numbers = [index.get(word, UNKNOWN) for word in sentence[:max_words]]
    if max_words is None or len(sentence) <= max_words:
        numbers.append(END)
    return numbers
