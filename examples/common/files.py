"""Files that are whole or absent, even after `kill -9`."""

import contextlib
import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # On Windows.
    fcntl = None  # type: ignore[assignment]  # A module elsewhere.

_PARTIAL = ".partial-"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to, which replaces `path` at the end.

    The suffix is kept, because savers look at it. If the body fails, `path`
    stays unchanged; an error of the disk is an `InputError`.
    """
    partial = path.with_name(f"{_PARTIAL}{os.getpid()}-{path.name}")
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
        _sync(path.parent)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error}); the old file is kept: make "
            "room, or the folder writable, and start again, with --resume "
            "if the script has it"
        ) from error
    finally:
        # If the folder is not writable, the file cannot be removed.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether `path` is the unfinished file of a killed writer."""
    return path.name.startswith(_PARTIAL)


def remove_partial(folder: Path) -> None:
    """Removes the unfinished files of killed writers in `folder`."""
    for path in folder.iterdir():
        if is_partial(path):
            path.unlink()


def check_folder(folder: Path) -> None:
    """Refuses an unusable output folder, without making anything."""
    with _named(folder):
        existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"--output-dir: {existing} is no writable folder")


def make_folder(folder: Path) -> None:
    """Makes an output folder, unless it exists."""
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Makes an output folder, and keeps other processes out meanwhile.

    The folder is free again when the process ends, even after `kill -9`.
    """
    make_folder(folder)
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"--output-dir: another process writes to {folder}; wait "
                    "for its end, or choose another folder"
                ) from error
            except OSError:  # A network's disk without locks.
                pass
        yield


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"--output-dir: {folder} cannot be made ({error.strerror})"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Writes a whole text file."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a whole JSON file, in the order given."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def read_text(path: Path, fallback: str = "utf-8") -> str:
    """Reads a text file in UTF-8 or, if it is not, in the encoding `fallback`.

    A zero byte, as UTF-16 has them, does not make it a file of the other one.
    """
    try:
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("utf-8" if b"\0" in content else fallback)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return text.replace("\r\n", "\n")


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a whole CSV file whose columns are the keys, as first met."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def parse_table(text: str, source: object) -> list[dict[str, str]]:
    """The rows of a CSV text; an `InputError` names its source."""
    try:
        rows = [*csv.DictReader(io.StringIO(text, newline=""), strict=True)]
    except csv.Error as error:
        raise InputError(f"{source} cannot be read: {error}") from error
    if any(None in row or None in row.values() for row in rows):
        raise InputError(f"{source} has a row of another length")
    return rows


def read_csv(path: Path) -> list[dict[str, float]]:
    """Reads a CSV file of numbers; empty cells are left out."""
    rows = parse_table(read_text(path), path)
    try:
        return [
            {key: float(value) for key, value in row.items() if value}
            for row in rows
        ]
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _sync(path: Path) -> None:
    """Waits until the disk has a file's content or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
