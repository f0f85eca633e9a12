"""Data files of packages from the index; the packages are not imported."""

import importlib.util
from pathlib import Path

from common.errors import InputError


def folder(package: str, task: str) -> Path:
    """The folder of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f"--task {task} needs the data of {package}: "
            "pip install '.[evidence]'"
        )
    return Path(spec.submodule_search_locations[0])


def read(path: Path) -> bytes:
    """The content of a file, which is not empty."""
    try:
        found = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from error
    if not found:
        raise InputError(f"{path} is empty")
    return found
