"""A call of the library by the names of its arrays.

For bindings: the arrays of a call, their shapes, and the call itself on
addresses.

    lstm        [i f g o] = N(h R) + N(x W) + bias
                c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
                h' = sigmoid(o) * tanh(N(c'))
                or [i f g o] = N(x W + h R + sum_bias) + bias
    gru         [z r] = N(h R_zr) + rb_zr + N(x W_zr) + bias_zr
                g  = tanh(N(x W_h) + bias_h
                          + sigmoid(r) * (N(h R_h) + rb_h))
                h' = (1 - sigmoid(z)) * h + sigmoid(z) * g
                or [z r a] = N(x W + h R + sum_bias) + bias
                g  = tanh(sigmoid(r) * a)
    simple_rnn  h' = tanh(N(x W + h R + bias))

`N(a) = gamma * (a - mean(a)) * scale + beta` with the statistics of one row,
`scale = 1 / sqrt(variance + epsilon)`, or 1 in a row without variance; without
gamma, `N(a) = a`. The gates z and r of the GRU are normalised together, its
candidate separately; sum_gamma normalises the sum of both products, all gates
together or, with the option sum_by_gate, each; rb is the recurrent bias. The
simple RNN's site takes kernel_gamma and kernel_beta. Zoneout comes after these:
a part of the new states keeps the old values. A reset replaces the states of a
row before the step.

Letters: B batch, T steps, D features, U units, G gates times units, R bytes.
"""

import ctypes
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from keras_ln_kernels.library import ABI_VERSION, OpenMP, library


class Cell(NamedTuple):
    """A cell, its states and its weights beside the kernels."""

    number: int
    gates: int
    states: tuple[str, ...]
    # The vectors that there may be. Each has gates × units elements, `state_*`
    # has units.
    vectors: tuple[str, ...]


def _rows(of: Any) -> Iterator[SimpleNamespace]:
    """The library's table of its slots, or of its cells."""
    for row in map(of, itertools.count()):
        if not row:
            return
        values = ((name, getattr(row[0], name)) for name, _ in row[0]._fields_)
        told = {n: v.decode() if isinstance(v, bytes) else v for n, v in values}
        yield SimpleNamespace(**told)


_SLOTS = [*_rows(library().kln_slot)]


def _letters(use: str, direction: str) -> dict[str, str]:
    """Shapes by name of the arrays that a pass reads or writes, in order."""
    used = (s for s in _SLOTS if s.letters and getattr(s, direction) == use)
    return {slot.name: slot.letters for slot in used}


ARGUMENTS = _letters("r", "backward")
RESULTS = _letters("w", "forward")
GRADIENTS = _letters("w", "backward")
# The arrays that a call can take, and those it can give, by its direction.
FORWARD = (tuple(_letters("r", "forward")), tuple(RESULTS))
BACKWARD = (tuple(ARGUMENTS), tuple(GRADIENTS))
# The options of a call beside its arrays, each a "float" or a "bool".
OPTIONS = {
    slot.name: "bool" if slot.type == "choice" else "float"
    for slot in _SLOTS
    if not slot.letters
}
DTYPES = ("float32", "float64")
# The library's sentence, as src/keras_ln_kernels.h has it.
_OUT_OF_MEMORY = b"out of memory"
_LETTERS = ARGUMENTS | RESULTS | GRADIENTS
_TYPES = {slot.name: slot.type for slot in _SLOTS}
_FIELDS: dict[str, Any] = {"choice": ctypes.c_int64, "number": ctypes.c_double}
PLACES = {name: place for place, name in enumerate(_TYPES)}


def _cell(number: int, gates: int) -> Cell:
    here = {s.name for s in _SLOTS if s.cells >> number & 1}
    own = [name for name in FORWARD[0] if name in here]
    states = (n.removeprefix("initial_") for n in own if "initial_" in n)
    vectors = (name for name in own if ARGUMENTS[name] in ("G", "U"))
    return Cell(number, gates, tuple(states), tuple(vectors))


CELLS = {
    row.name: _cell(number, row.gates)
    for number, row in enumerate(_rows(library().kln_cell))
}


class Sizes(NamedTuple):
    """The sizes of a problem."""

    batch: int
    steps: int
    features: int
    units: int


class Problem(ctypes.Structure):
    """KlnProblem."""

    _fields_ = [
        *[(n, ctypes.c_int32) for n in ("abi_version", "struct_bytes")],
        *[(n, ctypes.c_int32) for n in ("cell", "dtype")],
        *[(n, ctypes.c_int64) for n in (*Sizes._fields, "threads")],
        *[(f"parallel_{n}", ctypes.c_void_p) for n in ("for", "context")],
        *[(f"openmp_{name}", ctypes.c_void_p) for name in OpenMP._fields],
        ("residual_bytes", ctypes.c_int64),
        *[(s.name, _FIELDS.get(s.type, ctypes.c_void_p)) for s in _SLOTS],
    ]


class Call(NamedTuple):
    """A call without its arrays; src/keras_ln_kernels.h has the rest.

    Masks and choices are not differentiated. A call with `residuals` among
    the arguments runs backwards.
    """

    cell: str  # a name of CELLS
    dtype: str  # "float32" or "float64"
    # Names of ARGUMENTS, and of RESULTS, or GRADIENTS in a backward call, each
    # in the order that they have there.
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    options: tuple[float, ...]  # of `options`

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

    def dtype_of(self, name: str) -> str:
        """The dtype of an argument or a result."""
        known = {"flag": "bool", "byte": "uint8"}
        return known.get(_TYPES[name], self.dtype)

    def residual_bytes(self, sizes: Sizes) -> int:
        """The bytes of the residuals; batch and steps may be symbols."""
        # A symbol becomes the number that it stands for.
        features, units = int(sizes.features), int(sizes.units)
        fixed, row, step = self.residual_layout(features, units)
        return fixed + sizes.batch * (row + sizes.steps * step)

    @functools.lru_cache(maxsize=1024)  # noqa: B019 (of a tuple, which is small)
    def residual_layout(
        self, features: int, units: int
    ) -> tuple[int, int, int]:
        """Bytes of the residuals: in all, of each row, and of a row's step.

        Raises:
            ValueError: if the library refuses such a call.
        """
        # Only the presence of an array matters, not its address.
        there = dict.fromkeys(self.arguments, 64)
        problem = _problem(self, Sizes(1, 1, features, units), there, there)
        layout = (ctypes.c_int64 * 3)()
        wrong = library().kln_residual_layout(ctypes.byref(problem), layout)
        if wrong is not None:
            raise ValueError(f"{wrong.decode()}.")
        return tuple(layout)


def options(**values: float) -> tuple[float, ...]:
    """The options of a call by their names; other options are 0 or False.

    Raises:
        ValueError: for a name that is not of OPTIONS.
    """
    if unknown := values.keys() - OPTIONS.keys():
        raise ValueError(
            f"The kernels have no option {', '.join(sorted(unknown))}. There "
            f"are: {', '.join(OPTIONS)}."
        )
    return tuple(
        (bool if kind == "bool" else float)(values.get(name, 0))
        for name, kind in OPTIONS.items()
    )


def run(
    call: Call,
    addresses: Mapping[str, int],
    sizes: Sizes,
    threads: int,
    openmp: OpenMP | None = None,
) -> None:
    """Calls the library.

    Args:
        call: the call to run.
        addresses: of the arrays that it names, arguments and results, which
            must be dense, of the shapes that it tells, and alive until the
            call returns. Nothing can check that here.
        sizes: of the problem.
        threads: how many may work on it; a small problem takes fewer.
        openmp: the library whose team they are; None for threads of the
            kernels' own. A caller that uses OpenMP itself gives its own, whose
            threads otherwise hold the cores for some ms after its last work.

    Raises:
        MemoryError: if there is no scratch memory for it.
        ValueError: if the library refuses it, as it does results that
            overlap other arrays.
    """
    names = (*call.arguments, *call.results)
    problem = _problem(call, sizes, names, addresses, threads, openmp)
    if call.backward or "residuals" in call.results:
        problem.residual_bytes = call.residual_bytes(sizes)
    loaded = library()
    function = loaded.kln_backward if call.backward else loaded.kln_forward
    wrong = function(ctypes.byref(problem))
    if wrong == _OUT_OF_MEMORY:
        raise MemoryError(
            f"The kernels found no scratch memory for {sizes}, cell "
            f"{call.cell}, {call.dtype}."
        )
    if wrong is not None:
        raise ValueError(f"{wrong.decode()}.")


def _problem(
    call: Call,
    sizes: Sizes,
    names: Iterable[str],
    addresses: Mapping[str, int],
    threads: int = 1,
    openmp: OpenMP | None = None,
) -> Problem:
    # By position, which takes half of the time.
    problem = Problem(
        *(ABI_VERSION, ctypes.sizeof(Problem)),
        *(CELLS[call.cell].number, DTYPES.index(call.dtype)),
        *(*sizes, threads, None, None, *(openmp or (None, None)), 0),
        *call.options,
    )
    for name in names:
        setattr(problem, name, addresses[name])
    return problem
