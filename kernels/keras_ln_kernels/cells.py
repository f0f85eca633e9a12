"""What the library must be told of each cell."""

from typing import NamedTuple


class Cell(NamedTuple):
    """A cell, its states and its weights beside the kernels."""

    number: int
    gates: int
    states: tuple[str, ...]
    # The vectors that there may be. Each has gates × units elements, `state_*`
    # has units.
    vectors: tuple[str, ...]


_SITES = ("kernel_gamma", "kernel_beta", "recurrent_gamma", "recurrent_beta")

CELLS = {
    "lstm": Cell(
        0, 4, ("h", "c"), ("bias", *_SITES, "state_gamma", "state_beta")
    ),
    "gru": Cell(1, 3, ("h",), ("bias", "recurrent_bias", *_SITES)),
    "simple_rnn": Cell(2, 1, ("h",), ("bias", "kernel_gamma", "kernel_beta")),
}
