"""Random problems between guard pages, against the reference.

Every array ends or starts at a page that cannot be touched, arguments cannot
be written, and what is left of their pages holds bytes that must stay. A
process of its own runs the cases of one instruction set, since a fault ends it:

    python test_fuzz.py avx2 FIRST_SEED COUNT
"""

import ctypes
import mmap
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from problems import (
    arguments,
    check_gradients,
    check_values,
    draw,
    final_names,
    run,
)

import keras_ln_kernels
from keras_ln_kernels import CELLS, call

PAGE = mmap.PAGESIZE
CANARY = 0xA5


class Memory:
    """The arrays of one call."""

    def __init__(self, rng):
        self._rng = rng
        self._rooms = []

    def new(self, shape, dtype):
        """An array full of bytes 0xff, NaN that is, beside a guard page."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pages = -(-count // PAGE)
        memory = mmap.mmap(-1, (pages + 2) * PAGE)
        room = np.frombuffer(memory, "u1")[PAGE:-PAGE]
        protect(room.ctypes.data - PAGE, PAGE, 0)
        protect(room.ctypes.data + room.size, PAGE, 0)
        at = int(self._rng.integers(2)) * (room.size - count)
        if dtype == "u1" and len(shape) == 1:
            at -= at % 16  # residuals
        room[:] = CANARY
        room[at : at + count] = 0xFF
        self._rooms.append((room, at, at + count))
        return room[at : at + count].view(dtype).reshape(shape)

    def copy(self, array):
        """An argument, which cannot be written."""
        to = self.new(array.shape, array.dtype.str[1:])
        to[...] = array
        room = self._rooms[-1][0]
        protect(room.ctypes.data, room.size, mmap.PROT_READ)
        return to

    def check(self):
        """Whether what lies around the arrays is as it was."""
        for room, start, end in self._rooms:
            assert (room[:start] == CANARY).all(), "before an array"
            assert (room[end:] == CANARY).all(), "after an array"


def protect(address, size, mode):
    libc = ctypes.CDLL(None)
    assert not libc.mprotect(*map(ctypes.c_size_t, (address, size)), mode)


def some(rng, names, share=0.5):
    return [name for name in names if rng.random() < share]


def problem(rng, seed):
    """Any cell, sizes, weights and options."""
    cell = [*CELLS][rng.integers(3)]
    # Small ones, multiples of a vector and their neighbours; now and then more
    # rows than a group, and more features than are projected twice.
    sizes = [int(rng.choice([1, 2, 3, 5, 8, 13, 16, 17, 33])) for _ in range(4)]
    sizes[1] = int(rng.integers(1, 7))
    place, size = [(0, 131), (0, 515), (1, 40), (2, 70), (3, 66)][
        rng.integers(5)
    ]
    if rng.random() < 0.3:
        sizes[place] = size
    vectors = set(some(rng, CELLS[cell].vectors, rng.random()))
    # There is no beta without its gamma.
    vectors = {n for n in vectors if n.replace("beta", "gamma") in vectors}
    # A sum has one site, in place of others.
    summed = "sum_gamma" in vectors
    others = ("kernel_", "recurrent_") if summed else ("sum_",)
    vectors = {n for n in vectors if not n.startswith(others)}
    masks = some(rng, ("mask", "input_mask", "recurrent_mask"))
    masks += [(), ("starts",), ("starts", "resets")][rng.integers(3)]
    # A row that varies little magnifies rounding by 1 / sqrt(epsilon).
    options = {
        "epsilon": float(rng.choice([1e-2, 1e-3])),
        "go_backwards": bool(rng.integers(2)),
        "carry_normalized_state": "state_gamma" in vectors
        and bool(rng.integers(2)),
        "sum_by_gate": summed and bool(rng.integers(2)),
    }
    for name in ("zoneout", "cell_zoneout")[: len(CELLS[cell].states)]:
        kind = rng.integers(4)
        if kind == 0:
            masks.append(name)
        elif kind == 1:
            options[name] = float(rng.uniform(0.0, 0.9))
    return draw(cell, sizes, vectors, seed, masks, **options)


def case(seed):
    """One problem, forwards and backwards."""
    rng = np.random.default_rng(seed)
    drawn = problem(rng, seed)
    dtype = ["float32", "float64"][rng.integers(2)]
    threads = int(rng.choice([1, 2, 3, 7]))
    keras_ln_kernels.use_sharing(["rows", "columns"][seed % 2])
    memory = Memory(rng)
    arrays = {n: memory.copy(a) for n, a in arguments(drawn, dtype).items()}
    for name, array in arrays.items():
        if array.dtype == bool:
            # Whatever is not 0 chooses.
            factors = rng.integers(1, 256, array.shape, "u1")
            arrays[name] = memory.copy(array.view("u1") * factors)

    def library_runs(arrays, results):
        made = run(drawn, arrays, results, dtype, threads, memory.new)
        memory.check()
        return made

    finals = final_names(drawn)
    inference = library_runs(arrays, [*some(rng, ["outputs"]), *finals])
    found = library_runs(arrays, ["outputs", *finals, "residuals"])
    residuals = found.pop("residuals")
    for name, array in inference.items():
        assert array.tobytes() == found[name].tobytes(), name
    # Random errors of single steps, magnified by those that follow.
    tolerance = 1e-3 if dtype == "float32" else 1e-10
    check_values(drawn, found, tolerance, dtype)
    given = {**arrays, "residuals": memory.copy(residuals)}
    cotangents = {"d_outputs": drawn.d_outputs}
    cotangents |= {
        f"d_{n}": d for n, d in zip(finals, drawn.d_states, strict=True)
    }
    for name, array in cotangents.items():
        given[name] = memory.copy(array.astype(dtype))
    wanted = [f"d_{n}" for n in arrays if f"d_{n}" in call.GRADIENTS]
    gradients = library_runs(given, wanted)
    check_gradients(drawn, gradients, tolerance, dtype)
    # Without those that are not wanted, or cotangents that are not there.
    for name in cotangents:
        if rng.random() < 0.5:
            del given[name]
            cotangents[name] = np.zeros_like(cotangents[name])
    explicit = {n: memory.copy(a.astype(dtype)) for n, a in cotangents.items()}
    few = some(rng, wanted) or wanted[:1]
    expected = library_runs({**given, **explicit}, wanted)
    for name, array in library_runs(given, few).items():
        assert array.tobytes() == expected[name].tobytes(), name


def main(instruction_set, first, count):
    keras_ln_kernels.use_instruction_set(instruction_set)
    for seed in range(int(first), int(first) + int(count)):
        print(f"seed {seed}", flush=True)
        case(seed)


def fuzz(instruction_set, first, count):
    """Runs cases; the last line before an error has the seed that fails."""
    command = [sys.executable, "-X", "faulthandler", __file__]
    ended = subprocess.run(
        [*command, instruction_set, str(first), str(count)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60 + count,
    )
    last = ended.stdout.rpartition("seed ")[2]
    assert not ended.returncode, f"seed {last}{ended.stderr[-5000:]}"
    assert int(last) == first + count - 1


def test_cases_with_seeds_that_stay(each_instruction_set):
    fuzz(each_instruction_set, 0, 200)


@pytest.mark.slow
def test_other_cases_every_time(each_instruction_set):
    fuzz(each_instruction_set, int(time.time()), 2000)


if __name__ == "__main__":
    main(*sys.argv[1:])
