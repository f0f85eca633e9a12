"""The arrays of a recurrence by name, from a layer to the kernels' pointer.

Letters: B batch, T time, D input features, U units, n gates, G = nU.
"""

from typing import NamedTuple

from keras_ln.ops.cells.types import STATES


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
# The other weights are vectors, wide.
MATRICES = ("kernel", "recurrent_kernel")
# What the axes of the letters are called in messages.
WORDS = {"B": "batch", "T": "time", "D": "features", "U": "units"}
# Of what replaces a state, the one before the first step.
FIRST = {f"reset_{name}": f"initial_{name}" for name in STATES}


def words_of(letters: str) -> str:
    """The names of axes, such as "batch, time"."""
    return ", ".join(WORDS[letter] for letter in letters)
