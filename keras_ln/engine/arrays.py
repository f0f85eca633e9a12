"""The arrays of a recurrence by name, from a layer to the kernels' pointer.

Letters: B batch, T time, D input features, U units, n gates, G = nU.
"""

from typing import NamedTuple

from keras_ln.engine.spec import STATES


class Array(NamedTuple):
    """The properties of an array by its name."""

    # A letter for each axis, to check shapes.
    letters: str
    # The accepted dtypes: "real", floating point; "factor", numbers, which
    # become floating point; "flag", bool or zeros and ones; "choice", bool.
    kind: str = "real"
    # Whether it has the computation's dtype instead of the sequences'.
    wide: bool = False
    # Whether it has a gradient; the others are constants.
    learned: bool = True


_FLAG = Array("BT", "flag", learned=False)
_CHOICE = Array("BTU", "choice", learned=False)
_STATISTIC = Array("TG", wide=True, learned=False)
# All arrays except the weights, which each cell lists.
ARRAYS = {
    "x": Array("BTD"),
    # False at masked steps.
    "mask": _FLAG,
    # Dropout masks of the inputs and of h, scaled.
    "input_mask": Array("BD", "factor", learned=False),
    "recurrent_mask": Array("BU", "factor", learned=False),
    # The choices of zoneout: True for units that keep their state.
    "zoneout": _CHOICE,
    "cell_zoneout": _CHOICE,
    # Before the first step. A state keeps its dtype.
    "initial_h": Array("BU"),
    "initial_c": Array("BU"),
    # True at steps before which a row's states are replaced by `reset_h` and
    # `reset_c`, or by zeros.
    "starts": _FLAG,
    "reset_h": Array("BU"),
    "reset_c": Array("BU"),
    # Of a cell with batch statistics: they replace the batch's, and are in the
    # order of the visits.
    "kernel_moving_mean": _STATISTIC,
    "kernel_moving_variance": _STATISTIC,
    "recurrent_moving_mean": _STATISTIC,
    "recurrent_moving_variance": _STATISTIC,
    "state_moving_mean": _STATISTIC._replace(letters="TU"),
    "state_moving_variance": _STATISTIC._replace(letters="TU"),
}
# The other weights are vectors, wide.
MATRICES = ("kernel", "recurrent_kernel")
# The prefixes of the arrays' names, by argument of a layer.
ARGUMENTS_OF_STATES = {"initial_state": "initial", "reset_state": "reset"}
# The names of the letters' axes in messages.
WORDS = {"B": "batch", "T": "time", "D": "features", "U": "units"}
# The initial state for each state of resets.
FIRST = {f"reset_{name}": f"initial_{name}" for name in STATES}


def words_of(letters: str) -> str:
    """The names of axes, such as "batch, time"."""
    return ", ".join(WORDS[letter] for letter in letters)
