"""Data sets that tensorflow-datasets prepares."""

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.errors import InputError

_SECONDS = 5  # The time limit for a server's answer.


def load(
    data_set: str,
    splits: Sequence[str],
    data_dir: str | None,
    archives: Sequence[str],
    source: str,
) -> list[dict[str, Any]]:
    """Loads whole splits as NumPy arrays; prepares the data set if needed."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise InputError(
            "--data tfds needs tensorflow-datasets: pip install '.[examples]'"
        ) from error
    folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    manual = folder / "downloads" / "manual"
    builder = tfds.builder(data_set, data_dir=folder)
    name = builder.name
    if not builder.is_prepared():
        missing = [file for file in archives if not (manual / file).is_file()]
        if missing and not _reachable(source):
            raise InputError(
                f"{name} is not prepared in {folder}, {missing[0]} is not in "
                f"{manual}, and {source} cannot be reached; put "
                f"{', '.join(archives)} into that folder or name the right "
                "one with --data-dir"
            )
    with _told(name, folder):
        # If all archives are present, "download" takes them from there.
        builder.download_and_prepare()
        return [
            tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
            for split in splits
        ]


@contextlib.contextmanager
def _told(name: str, folder: Path) -> Iterator[None]:
    """Raises an `InputError` of one sentence for a data set's errors."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # Many packages, without a common class.
        raise InputError(
            f"{name} in {folder} cannot be prepared or read: "
            f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        ) from error


def _reachable(source: str) -> bool:
    request = urllib.request.Request(source, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True  # An answer, though not a kind one.
    except OSError:
        return False
