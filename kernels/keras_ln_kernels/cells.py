"""What the library must be told of each cell.

Letters: U units, n gates.
"""

from typing import NamedTuple


class Cell(NamedTuple):
    """A cell, its states and its weights."""

    number: int
    gates: int
    states: tuple[str, ...]
    # Vectors by name: their length in units, and the name they have in C.
    vectors: dict[str, tuple[int, str]]

    def shapes(self, features: int, units: int) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights there may be, by name."""
        width = self.gates * units
        shapes: dict[str, tuple[int, ...]] = {
            "kernel": (features, width),
            "recurrent_kernel": (units, width),
        }
        for name, (length, _) in self.vectors.items():
            shapes[name] = (length * units,)
        return shapes

    def name_in_c(self, weight: str) -> str:
        """The name of a weight in the library's structs."""
        return self.vectors.get(weight, (0, weight))[1]


def _vectors(length: int, *names: str) -> dict[str, tuple[int, str]]:
    return {name: (length, name) for name in names}


_SITES = ("kernel_gamma", "kernel_beta", "recurrent_gamma", "recurrent_beta")

CELLS = {
    "lstm": Cell(
        0,
        4,
        ("h", "c"),
        _vectors(4, "bias", *_SITES) | _vectors(1, "state_gamma", "state_beta"),
    ),
    "gru": Cell(1, 3, ("h",), _vectors(3, "bias", "recurrent_bias", *_SITES)),
    "simple_rnn": Cell(
        2,
        1,
        ("h",),
        {
            "bias": (1, "bias"),
            "gamma": (1, "kernel_gamma"),
            "beta": (1, "kernel_beta"),
        },
    ),
}
