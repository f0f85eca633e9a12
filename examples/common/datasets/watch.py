"""Movements of a watch from the package seglearn (Burns et al., 2018).

Ten persons did seven exercises of the shoulder with each arm, about 20 times.
The file is a dictionary that NumPy has saved, so it is pickled.
"""

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.datasets import packages
from common.errors import InputError

FILE = Path("data") / "watch_dataset.npy"
# The only names in the file that are allowed.
_KNOWN = {"_reconstruct", "ndarray", "dtype", "scalar", "encode"}
_MODULES = ("numpy", "_codecs")


class Watch(NamedTuple):
    """Series of six numbers, 50 a second: accelerations and rotations."""

    series: list[np.ndarray]  # (T, 6) float64 each
    exercises: np.ndarray  # (N,) int
    persons: np.ndarray  # (N,) int


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = name in _KNOWN and module.partition(".")[0] in _MODULES
        if not known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module, name)


def load(folder: Path) -> Watch:
    """Reads the file."""
    path = folder / FILE
    file = io.BytesIO(packages.read(path))
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            np.lib.format.read_array_header_1_0(file)
        else:
            np.lib.format.read_array_header_2_0(file)
        found = _Unpickler(file).load().item()
        series = [np.asarray(own, np.float64) for own in found["X"]]
        data = Watch(
            series,
            np.asarray(found["y"], np.int64),
            np.asarray(found["subject"], np.int64),
        )
    # NumPy and pickle raise these for truncated files and files of other kinds.
    except (
        *(ValueError, TypeError, KeyError, EOFError, AttributeError),
        *(IndexError, ImportError, OverflowError, pickle.UnpicklingError),
    ) as error:
        raise InputError(
            f"{path} is not the file of seglearn, or is damaged ({error})"
        ) from error
    sizes = {len(series), len(data.exercises), len(data.persons)}
    shaped = all(own.ndim == 2 and own.shape[1] == 6 for own in series)
    if len(sizes) > 1 or not series or not shaped:
        raise InputError(f"{path} has no series of six numbers with labels")
    return data
