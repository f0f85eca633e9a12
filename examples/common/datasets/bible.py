"""The verses of two English Bibles, which the packages of `pythonbible` ship.

King James (1769) and World English Bible: some 31,000 verses each, in the same
order and, except for three, with the same numbers.
"""

import functools
import re
from typing import NamedTuple

from common.errors import InputError

VERSIONS = {"kjv": "KING_JAMES", "web": "WORLD_ENGLISH"}

_MARKS = str.maketrans({"[": "", "]": "", "`": "'", "’": "'"})


class Verse(NamedTuple):
    """A verse; the first three name it in every version."""

    book: str  # "Genesis", "1 Samuel", ...
    chapter: int
    verse: int
    text: str


@functools.cache
def verses(version: str) -> tuple[Verse, ...]:
    """All verses in order."""
    try:
        import pythonbible
    except ImportError as error:
        raise _missing(version) from error
    chosen = pythonbible.Version[VERSIONS[version]]
    try:
        # `get_verse_text` takes its texts from this type.
        bible = pythonbible.get_bible(chosen, "plain_text_readers")
    except pythonbible.MissingBiblePackageError as error:
        raise _missing(version) from error
    return tuple(
        Verse(
            pythonbible.Book(pythonbible.get_book_number(number)).title,
            pythonbible.get_chapter_number(number),
            pythonbible.get_verse_number(number),
            _clean(pythonbible.get_verse_text(number, version=chosen)),
        )
        for number in sorted(bible.get_verse_ids())
    )


def _missing(version: str) -> InputError:
    return InputError(
        f"the embedded text needs pythonbible and pythonbible-{version}: "
        "pip install '.[examples]'"
    )


def _clean(text: str) -> str:
    # "first -[fruits]" is one word.
    text = text.replace(" -[", "-").translate(_MARKS)
    return re.sub(r"\s+", " ", text).strip()
