"""Chorales of Bach from the package music21: compressed MusicXML.

A score is a zip archive; its parts hold measures, whose notes last a number
of divisions of a quarter note.
"""

import xml.etree.ElementTree as ET
import zipfile
import zlib
from pathlib import Path

import numpy as np

from common.datasets import packages
from common.errors import InputError

FOLDER = Path("corpus") / "bach"
VOICES = 4
# The lowest pitch as a MIDI number, and the number of pitches.
LOWEST, PITCHES = 36, 48
# No chorale is nearly as long.
QUARTERS = 10_000
_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def load(folder: Path) -> dict[str, np.ndarray]:
    """The pitches on every quarter note, of scores of four voices."""
    paths = sorted((folder / FOLDER).glob("bwv*.mxl"))
    if not paths:
        raise InputError(f"{folder / FOLDER} has no chorales (bwv*.mxl)")
    found = {}
    for path in paths:
        score = _score(path)
        parts = score.findall("part")
        if len(parts) == VOICES:
            try:
                roll = _roll([_notes(part) for part in parts])
            except (
                *(AttributeError, KeyError, TypeError, ValueError),
                ArithmeticError,
            ) as error:
                raise InputError(f"{path} is no score ({error!r})") from error
            if roll is not None:
                found[path.stem] = roll
    if not found:
        raise InputError(
            f"{folder / FOLDER} has no chorales of four voices (bwv*.mxl)"
        )
    return found


def _score(path: Path) -> ET.Element:
    packages.read(path)
    try:
        with zipfile.ZipFile(path) as archive:
            container = ET.fromstring(archive.read("META-INF/container.xml"))
            # Some files lack the namespace.
            (first, *_) = container.iterfind(".//{*}rootfile")
            return ET.fromstring(archive.read(first.attrib["full-path"]))
    except (
        *(zipfile.BadZipFile, zlib.error, ET.ParseError, EOFError),
        # Damaged zip archives raise RuntimeError and its subclasses for
        # methods and passwords, OSError for places before the start.
        *(LookupError, ValueError, RuntimeError, OSError),
    ) as error:
        raise InputError(
            f"{path} is damaged, or no score of music21 ({error})"
        ) from error


def _notes(part: ET.Element) -> list[tuple[float, float, int]]:
    """The start, the end (in quarter notes) and the pitch of each note."""
    found, divisions, measure = [], 1.0, 0.0
    for own in part.findall("measure"):
        now = last = end = measure
        for element in own:
            if element.tag == "attributes":
                divisions = float(element.findtext("divisions", divisions))
                continue
            if element.tag not in ("note", "backup", "forward"):
                continue
            # Grace notes take no time.
            length = float(element.findtext("duration", 0)) / divisions
            if element.tag == "backup":
                now -= length
                continue
            # Notes of a chord begin with the note before.
            start = last if element.find("chord") is not None else now
            if not 0 <= start <= start + length <= QUARTERS:
                raise ValueError(
                    f"a note from quarter {start:g} to {start + length:g}"
                )
            pitch = element.find("pitch")
            if pitch is not None and length:
                found.append((start, start + length, _midi(pitch)))
            last, now = start, start + length
            end = max(end, now)
        measure = end
    return found


def _midi(pitch: ET.Element) -> int:
    step = _STEPS[pitch.findtext("step").strip()]
    alter = int(float(pitch.findtext("alter", 0)))
    return 12 * (int(pitch.findtext("octave")) + 1) + step + alter


def _roll(parts: list[list[tuple[float, float, int]]]) -> np.ndarray | None:
    """The pitches on each quarter; None if a pitch is out of range."""
    notes = [note for part in parts for note in part]
    if not all(parts):
        return None
    roll = np.zeros((int(np.ceil(max(n[1] for n in notes))), PITCHES), np.int8)
    for start, end, pitch in notes:
        if not LOWEST <= pitch < LOWEST + PITCHES:
            return None
        roll[int(np.ceil(start)) : int(np.ceil(end)), pitch - LOWEST] = 1
    return roll
