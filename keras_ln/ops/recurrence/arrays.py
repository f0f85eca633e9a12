"""The arrays of a recurrence by name, from a layer to the kernels' pointer.

Letters: B batch, T time, D input features, U units, n gates, G = nU.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_ln.ops.cells.types import STATES, Cell


class Array(NamedTuple):
    """What there is to know of an array by its name."""

    # A letter for each axis, which shapes are checked against.
    letters: str
    # Which dtypes are taken: "real", floating point; "factor", numbers, which
    # become floating point; "flag", bool or zeros and ones; "choice", bool.
    kind: str = "real"
    # Whether it has the dtype of the computation, and not the sequences'.
    wide: bool = False
    # Whether it has a gradient; the others are constants.
    learned: bool = True


_FLAG = Array("BT", "flag", learned=False)
_CHOICE = Array("BTU", "choice", learned=False)
_OF_UNITS, _OF_GATES = Array("U", wide=True), Array("G", wide=True)
_STATISTIC = Array("TG", wide=True, learned=False)
# Beside the weights, which each cell lists.
ARRAYS = {
    "x": Array("BTD"),
    # False where a row's step is left out.
    "mask": _FLAG,
    # Dropout masks of the inputs and of h, scaled.
    "input_mask": Array("BD", "factor", learned=False),
    "recurrent_mask": Array("BU", "factor", learned=False),
    # The choices of zoneout: True where a unit keeps its state.
    "zoneout": _CHOICE,
    "cell_zoneout": _CHOICE,
    # Before the first step. A state keeps its dtype.
    "initial_h": Array("BU"),
    "initial_c": Array("BU"),
    # True where a row's states are replaced before that step is visited, by
    # these, or by zeros.
    "starts": _FLAG,
    "reset_h": Array("BU"),
    "reset_c": Array("BU"),
    # The statistics of a cell with batch statistics, in place of the batch's,
    # in the order of the visits.
    "kernel_moving_mean": _STATISTIC,
    "kernel_moving_variance": _STATISTIC,
    "recurrent_moving_mean": _STATISTIC,
    "recurrent_moving_variance": _STATISTIC,
    "state_moving_mean": _STATISTIC._replace(letters="TU"),
    "state_moving_variance": _STATISTIC._replace(letters="TU"),
}
MATRICES = {"kernel": Array("DG"), "recurrent_kernel": Array("UG")}
# What the axes of the letters are called in messages.
WORDS = {"B": "batch", "T": "time", "D": "features", "U": "units"}
# Their order tells the states apart.
INITIAL = {f"initial_{name}": name for name in STATES}
RESET = {f"reset_{name}": name for name in STATES}


def array_of(cell: Cell, name: str) -> Array:
    """What there is to know of an array or of a weight of the cell."""
    if name in ARRAYS:
        return ARRAYS[name]
    if name in MATRICES:
        return MATRICES[name]
    sizes = {vector.name: vector.size for vector in cell.vectors}
    return _OF_UNITS if sizes.get(name) == 1 < cell.gates else _OF_GATES


def words_of(letters: str) -> str:
    """The names of axes, such as "batch, time"."""
    return ", ".join(WORDS[letter] for letter in letters)


def states_in(
    cell: Cell, arrays: Mapping[str, Any], prefix: str
) -> tuple[Any, ...]:
    """The arrays of the states with that prefix, h first; None if missing."""
    return tuple(arrays.get(f"{prefix}_{name}") for name in cell.state_names)


def weights_in(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The weights among the arrays."""
    return {name: a for name, a in arrays.items() if name not in ARRAYS}


def moving_in(arrays: Mapping[str, Any]) -> dict[str, tuple[Any, Any]] | None:
    """Mean and variance by site, where statistics are given."""
    end = "_moving_mean"
    sites = [name.removesuffix(end) for name in arrays if name.endswith(end)]
    return {
        site: (arrays[f"{site}{end}"], arrays[f"{site}_moving_variance"])
        for site in sites
    } or None
