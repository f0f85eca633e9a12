"""A call of the library by the names of its arrays.

For those who bind tensors: what a call takes and gives, of which shapes, and
the call itself on addresses.

    lstm        [i f g o] = N(h R) + N(x W) + bias
                c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h' = sigmoid(o) * tanh(N(c'))
    gru         [z r] = N(h R_zr) + rb_zr + N(x W_zr) + bias_zr
                g  = tanh(N(x W_h) + bias_h
                          + sigmoid(r) * (N(h R_h) + rb_h))
                h' = (1 - sigmoid(z)) * h + sigmoid(z) * g
    simple_rnn  h' = tanh(N(x W + h R + bias))

`N(a) = gamma * (a - mean(a)) * scale + beta` with the statistics of one row,
`scale = 1 / sqrt(variance + epsilon)`, or 1 in a row without variance; where
there is no gamma, `N(a) = a`. The gates z and r of the GRU are normalised
together, its candidate by itself; rb is the recurrent bias. The simple RNN's
site takes kernel_gamma and kernel_beta. Zoneout comes after these: of the new
states a part is what it was before. Where a row starts anew, its states are
replaced before the step.

Letters: B batch, T steps, D features, U units, G gates times units, R bytes.
"""

import ctypes
import functools
from collections.abc import Mapping
from typing import NamedTuple

from keras_ln_kernels.cells import CELLS
from keras_ln_kernels.library import (
    ABI_VERSION,
    Backward,
    Forward,
    Problem,
    library,
)

# Names and shapes in the order of the structs' pointers, which is that of the
# XLA handlers too.
_VECTORS = {
    "bias": "G",
    "recurrent_bias": "G",
    "kernel_gamma": "G",
    "kernel_beta": "G",
    "recurrent_gamma": "G",
    "recurrent_beta": "G",
    "state_gamma": "U",
    "state_beta": "U",
}
_WEIGHTS = {"kernel": "DG", "recurrent_kernel": "UG", **_VECTORS}
_STATES = {"initial_h": "BU", "initial_c": "BU"}
_RESETS = {"reset_h": "BU", "reset_c": "BU"}
_PROBLEM = {
    "x": "BTD",
    "mask": "BT",
    "input_mask": "BD",
    "recurrent_mask": "BU",
    "zoneout": "BTU",
    "cell_zoneout": "BTU",
    **_STATES,
    "starts": "BT",
    **_RESETS,
    **_WEIGHTS,
}
_COTANGENTS = {"d_outputs": "BTU", "d_final_h": "BU", "d_final_c": "BU"}

ARGUMENTS = {**_PROBLEM, "residuals": "R", **_COTANGENTS}
RESULTS = {
    "outputs": "BTU",
    "final_h": "BU",
    "final_c": "BU",
    "residuals": "R",
}
GRADIENTS = {
    f"d_{name}": letters
    for name, letters in {
        **{"x": "BTD", **_STATES, **_RESETS},
        **_WEIGHTS,
    }.items()
}
# What a call can take and what it can give, by its direction.
FORWARD = (tuple(_PROBLEM), tuple(RESULTS))
BACKWARD = (tuple(ARGUMENTS), tuple(GRADIENTS))
DTYPES = ("float32", "float64")
# The library's sentence, as src/keras_ln_kernels.h has it.
_OUT_OF_MEMORY = b"out of memory"
_LETTERS = ARGUMENTS | RESULTS | GRADIENTS


class Sizes(NamedTuple):
    """The sizes of a problem."""

    batch: int
    steps: int
    features: int
    units: int


class Call(NamedTuple):
    """What a call is beside its arrays; src/keras_ln_kernels.h has the rest.

    Masks and choices are not differentiated. Where `residuals` is among the
    arguments it is the call that runs backwards.
    """

    cell: str  # a name of CELLS
    dtype: str  # "float32" or "float64"
    epsilon: float
    go_backwards: bool
    carry_normalized_state: bool
    # Names of ARGUMENTS, and of RESULTS, or GRADIENTS in a backward call, each
    # in the order that they have there.
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    # What stays of h and c where there are no choices.
    zoneout_share: float = 0.0
    cell_zoneout_share: float = 0.0

    @property
    def backward(self) -> bool:
        """Whether it runs backwards."""
        return "residuals" in self.arguments

    @property
    def takes(self) -> tuple[str, ...]:
        """The arguments that there can be."""
        return (BACKWARD if self.backward else FORWARD)[0]

    @property
    def gives(self) -> tuple[str, ...]:
        """The results that there can be."""
        return (BACKWARD if self.backward else FORWARD)[1]

    def sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
        """The sizes, from the shapes of x and recurrent_kernel."""
        return Sizes(*shapes["x"], shapes["recurrent_kernel"][0])

    @staticmethod
    def letters(name: str) -> str:
        """The letters of the shape of an argument or a result."""
        return _LETTERS[name]

    def shape(self, name: str, sizes: Sizes) -> tuple[int, ...]:
        """The shape of an argument or a result."""
        if _LETTERS[name] == "R":
            return (self.residual_bytes(sizes),)
        gates = CELLS[self.cell].gates
        lengths = dict(zip("BTDU", sizes, strict=True), G=gates * sizes.units)
        return tuple(lengths[letter] for letter in _LETTERS[name])

    def residual_bytes(self, sizes: Sizes) -> int:
        """Enough bytes for the residuals; batch and steps may be symbols."""
        # A symbol becomes the number that it stands for.
        features, units = int(sizes.features), int(sizes.units)
        fixed, row, step = self.residual_layout(features, units)
        return fixed + sizes.batch * (row + sizes.steps * step)

    def residual_layout(
        self, features: int, units: int
    ) -> tuple[int, int, int]:
        """Bytes of the residuals: in all, of each row, and of a row's step."""
        return _residual_layout(self, features, units)


@functools.lru_cache(maxsize=1024)
def _residual_layout(
    call: Call, features: int, units: int
) -> tuple[int, int, int]:

    def needed(batch: int, steps: int) -> int:
        problem = _problem(call, Sizes(batch, steps, features, units))
        for name in call.arguments:
            if name in _PROBLEM:
                # Whether it is there matters, not where.
                setattr(problem, name, 64)
        return library().kln_residual_bytes(problem)

    # Arrays are rounded up to cache lines: those of 64 rows are so already.
    base, longer, larger = needed(64, 1), needed(64, 2), needed(128, 1)
    if min(base, longer, larger) < 0:
        raise ValueError(
            f"the library refuses {call} of {features} features and {units} "
            "units"
        )
    step = (longer - base) // 64
    row = (larger - base) // 64 - step
    return base - 64 * (row + step) + 64, row, step


def run(
    call: Call, addresses: Mapping[str, int], sizes: Sizes, threads: int
) -> None:
    """Calls the library.

    Args:
        call: what to run.
        addresses: of the arrays that it names, arguments and results, which
            must be dense, of the shapes that it tells, and alive until the
            call returns. Nothing can check that here.
        sizes: of the problem.
        threads: how many may work on it; a small problem takes fewer.

    Raises:
        MemoryError: where there is no scratch memory for it.
        ValueError: where the library refuses it, as it does results that
            overlap other arrays.
    """
    loaded = library()
    problem = _problem(call, sizes, threads)
    struct = Backward() if call.backward else Forward()
    for name in call.arguments:
        setattr(problem if name in _PROBLEM else struct, name, addresses[name])
    for name in call.results:
        setattr(struct, name, addresses[name])
    if call.backward or "residuals" in call.results:
        struct.residual_bytes = call.residual_bytes(sizes)
    function = loaded.kln_backward if call.backward else loaded.kln_forward
    wrong = function(problem, struct)
    if wrong == _OUT_OF_MEMORY:
        raise MemoryError(
            f"The kernels found no scratch memory for {sizes}, cell "
            f"{call.cell}, {call.dtype}."
        )
    if wrong is not None:
        raise ValueError(f"{wrong.decode()}.")


def _problem(call: Call, sizes: Sizes, threads: int = 1) -> Problem:
    return Problem(
        abi_version=ABI_VERSION,
        struct_bytes=ctypes.sizeof(Problem),
        cell=CELLS[call.cell].number,
        dtype=DTYPES.index(call.dtype),
        go_backwards=call.go_backwards,
        carry_normalized_state=call.carry_normalized_state,
        batch=sizes.batch,
        steps=sizes.steps,
        features=sizes.features,
        units=sizes.units,
        epsilon=call.epsilon,
        zoneout_share=call.zoneout_share,
        cell_zoneout_share=call.cell_zoneout_share,
        threads=threads,
    )
