"""A launch on a GPU by the names of its arrays, for those who bind tensors.

src/cuda/sequence.h describes the arrays, and a caller's computations around
a launch. Letters: B batch, T steps, U units, G gates times units, N numbers
that a gradient needs of the norms. Arrays are float32, `flags` is uint8.
"""

from collections.abc import Mapping
from typing import NamedTuple

from keras_ln_kernels.gpu_plan import CELLS

_GATES = {"lstm": 4, "gru": 3}
# Of `norms` for a row and a step.
_NUMBERS = {"lstm": 3, "gru": 2}
_GIVEN = {
    **{"zx": "BTG", "flags": "BT"},
    **{"initial_h": "BU", "initial_c": "BU", "reset_h": "BU", "reset_c": "BU"},
    **{"recurrent": "UG", "recurrent_gamma": "G", "recurrent_bias": "G"},
    **{"state_gamma": "U", "state_beta": "U"},
}
_MADE = {"h": "BTU", "c": "BTU", "from_h": "BTG", "norms": "BTN"}
_FINAL = {"final_h": "BU", "final_c": "BU"}
_COTANGENTS = {"d_h": "BTU", "d_final_h": "BU", "d_final_c": "BU"}
_GRADIENTS = {
    **{"d_zx": "BTG", "d_shown": "BTU"},
    **{"d_state_gamma": "BU", "d_state_beta": "BU"},
    **{"d_initial_h": "BU", "d_initial_c": "BU"},
    **{"d_reset_h": "BU", "d_reset_c": "BU"},
}
_LETTERS = {**_GIVEN, **_MADE, **_FINAL, **_COTANGENTS, **_GRADIENTS}
_LETTERS["back"] = "BTS"
# The arguments and the results that there can be, by direction.
FORWARD = (tuple(_GIVEN), (*_MADE, *_FINAL))
BACKWARD = ((*_GIVEN, *_MADE, "back", *_COTANGENTS), tuple(_GRADIENTS))
# The settings of a call, and their types.
OPTIONS = {"epsilon": "float", "go_backwards": "bool"}
# The products' operands are rounded to one of these; a framework says more.
OPERANDS = ("float32", "bfloat16", "float16")


class Sizes(NamedTuple):
    """The sizes of a problem."""

    batch: int
    steps: int
    units: int


class GpuCall(NamedTuple):
    """A launch without its arrays."""

    cell: str  # "lstm" or "gru"
    backward: bool
    operands: str  # of OPERANDS
    # Of `takes` and `gives`, in that order.
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    options: tuple[float, ...]  # by OPTIONS

    @property
    def takes(self) -> tuple[str, ...]:
        """The arguments that there can be."""
        return (BACKWARD if self.backward else FORWARD)[0]

    @property
    def gives(self) -> tuple[str, ...]:
        """The results that there can be."""
        return (BACKWARD if self.backward else FORWARD)[1]

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
        """The sizes, from the shapes of zx and recurrent."""
        return Sizes(*shapes["zx"][:2], shapes["recurrent"][0])

    def shape(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """The shape of an argument or a result."""
        lengths = self.lengths(sizes)
        return tuple(lengths[axis] for axis in self.axes(name))

    def lengths(self, sizes: Sizes) -> dict[str, int]:
        """The length of an axis by its letter."""
        batch, steps, units = sizes
        return {
            **{"B": batch, "T": steps, "U": units},
            "G": _GATES[self.cell] * units,
            "N": _NUMBERS[self.cell],
            "S": (1 + CELLS[self.cell]) * units,
        }

    def axes(self, name: str) -> str:
        """The letters of an argument's or a result's axes."""
        return _LETTERS[name]

    def dtype_of(self, name: str) -> str:
        """The dtype of an argument or a result."""
        return "uint8" if name == "flags" else "float32"

    def named_options(self) -> dict[str, float]:
        """The options by name, as `Gpu.launch` takes them."""
        return dict(zip(OPTIONS, self.options, strict=True))
