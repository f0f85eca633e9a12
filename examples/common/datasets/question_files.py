"""The questions of Hermann et al. in the format in which they are published.

"Teaching Machines to Read and Comprehend" (2015). The archives of the CNN and
the Daily Mail questions unpack to

    questions/{training,validation,test}/<hash>.question

one file per question, of five parts with blank lines between: an address, the
passage, the query with @placeholder in place of an entity, the answer, and a
line `@entity0:Name` for every entity.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.datasets.cloze import BLANK
from common.errors import InputError

HOMEPAGE = "https://cs.nyu.edu/~kcho/DMQA/"

SPLITS = {"train": "training", "validation": "validation", "test": "test"}

_PARTS = ("address", "passage", "query", "answer", "entities")


class Published(NamedTuple):
    """One file."""

    passage: str
    query: str
    answer: str  # One of the markers.
    entities: list[str]  # The markers, "@entity0" and so on.


def read_split(folder: Path, split: str) -> Iterator[tuple[str, Published]]:
    """The questions of a split, by the names of their files."""
    files = folder / "questions" / SPLITS[split]
    paths = sorted(files.glob("*.question"))
    if not paths:
        raise InputError(f"there is no {files}/*.question")
    for path in paths:
        yield path.stem, read(path)


def read(path: Path) -> Published:
    """One question."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    parts = [part.strip() for part in text.rstrip().split("\n\n")]
    if len(parts) != len(_PARTS):
        raise InputError(
            f"{path} has {len(parts)} parts with blank lines between instead "
            f"of {len(_PARTS)} ({', '.join(_PARTS)})"
        )
    for name, part in zip(_PARTS, parts, strict=True):
        if not part:
            raise InputError(f"{path}: the {name} is empty")
    _, passage, query, answer, lines = parts
    entities = [line.partition(":")[0].strip() for line in lines.splitlines()]
    for entity in entities:
        if not entity.startswith("@entity"):
            raise InputError(
                f"{path}: expected lines such as @entity0:Name at its end, "
                f"received {entity!r}"
            )
    if BLANK not in query.split():
        raise InputError(f"{path}: the query has no {BLANK}")
    if answer not in entities:
        raise InputError(
            f"{path}: the answer {answer!r} is not among the entities"
        )
    return Published(passage, query, answer, entities)
