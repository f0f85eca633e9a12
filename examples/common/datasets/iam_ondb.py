"""IAM-OnDB: lines of English, handwritten on a whiteboard.

Liwicki and Bunke, "IAM-OnDB, an on-line English sentence database acquired
from handwritten text on a whiteboard" (2005). The published archives unpack to

    lineStrokes/a01/a01-000/a01-000u-01.xml   the strokes of one line
    ascii/a01/a01-000/a01-000u.txt            the text of all lines of a form
    trainset.txt testset_v.txt testset_t.txt testset_f.txt   forms, one a line

and can be requested at the address below.
"""

import xml.etree.ElementTree as ET
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.errors import InputError

Line = tuple[str, np.ndarray]

HOMEPAGE = (
    "https://fki.tic.heia-fr.ch/databases/iam-on-line-handwriting-database"
)

SPLITS = {
    "train": "trainset.txt",
    "validation": "testset_v.txt",
    "validation_2": "testset_t.txt",
    "test": "testset_f.txt",
}


def read(args: Namespace) -> dict[str, list[Line]]:
    """Texts and points of the splits, from the folder that --data names."""
    folder = Path(args.data)
    if not folder.is_dir():
        raise InputError(
            "--data: expected a folder with lineStrokes, ascii and "
            f"trainset.txt of IAM-OnDB ({HOMEPAGE}), received {args.data}"
        )
    return {
        split: [line[1:] for line in lines(folder, split)] for split in SPLITS
    }


def lines(folder: Path, split: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """The lines of a split: name, text and points (n, 3).

    A point is x, y (up) and whether the stroke ends there.
    """
    forms = {path.stem: path for path in folder.glob("ascii/**/*.txt")}
    for line in _text(folder / SPLITS[split]).split():
        # A name stands for the forms of all writers, or for one of them.
        names = (
            [line]
            if line in forms
            else sorted(name for name in forms if name[:-1] == line)
        )
        if not names:
            raise InputError(
                f"{folder / SPLITS[split]} names the form {line}, but there "
                f"is no ascii/**/{line}*.txt"
            )
        for name in names:
            parents = forms[name].relative_to(folder / "ascii").parent
            strokes = folder / "lineStrokes" / parents
            texts = read_text(forms[name])
            paths = sorted(strokes.glob(f"{name}-*.xml"))
            if not paths:
                raise InputError(f"there is no {strokes}/{name}-*.xml")
            for path in paths:
                number = path.stem.rpartition("-")[2]
                if not number.isdigit() or not 0 < int(number) <= len(texts):
                    raise InputError(
                        f"{forms[name]} has {len(texts)} lines and none for "
                        f"{path.name}"
                    )
                yield path.stem, texts[int(number) - 1], read_strokes(path)


def read_text(path: Path) -> list[str]:
    """The lines of a form, which are below the mark CSR."""
    _, mark, text = _text(path).partition("CSR:")
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not mark or not found:
        raise InputError(f"{path} has no lines of text below CSR:")
    return found


def read_strokes(path: Path) -> np.ndarray:
    """The points (n, 3) of a line; the y of the file points down."""
    try:
        root = ET.fromstring(_read(path))
    except ET.ParseError as error:
        raise InputError(f"{path} is no whole XML file: {error}") from error
    points = []
    try:
        for stroke in root.iter("Stroke"):
            own = [
                (float(point.attrib["x"]), -float(point.attrib["y"]), 0.0)
                for point in stroke.iter("Point")
            ]
            if own:
                own[-1] = (*own[-1][:2], 1.0)
            points += own
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{path} has a point without numbers x and y: {error}"
        ) from error
    if len(points) < 2:
        raise InputError(f"{path} has no strokes")
    with np.errstate(over="ignore"):
        found = np.array(points, np.float32)
    if not np.isfinite(found).all():
        raise InputError(
            f"{path} has a point whose x or y is not finite in float32"
        )
    return found


def _text(path: Path) -> str:
    """UTF-8 or, as some of these files are, Latin-1."""
    content = _read(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist") from error
