"""What two runs have to have in common to the last digit."""

from pathlib import Path

import keras
import numpy as np
from scripts import rows

# Times and machines, which no run repeats, and what only KerasTuner reads.
_OWN = ("environment.json", "backup.npz", "search")


def without_seconds(rows):
    """Rows of a history but for the time they took, which no run repeats."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def _weights(path):
    model = keras.models.load_model(path, compile=False)
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


def _arrays(path):
    with np.load(path) as file:
        return [file[name] for name in sorted(file)]


_CONTENTS = {
    ".keras": _weights,
    ".npz": _arrays,
    "history.csv": lambda path: without_seconds(rows(path)),
}


def _files(folder):
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {path for path in found if not {*path.parts}.intersection(_OWN)}


def assert_same_run(one, two):
    """The same files in two folders, and in them the same numbers."""
    assert _files(one) == _files(two)
    for path in _files(one):
        kind = path.suffix if path.suffix in _CONTENTS else path.name
        content = _CONTENTS.get(kind, Path.read_bytes)
        np.testing.assert_equal(
            content(one / path), content(two / path), str(path)
        )
