"""Rows or columns: the rule, and what happens where threads are short."""

import ctypes
import os

import pytest
from problems import arguments, call_of, draw, problem
from test_arguments import fresh

import keras_ln_kernels
from keras_ln_kernels import CELLS
from keras_ln_kernels.library import library

CACHE = library().kln_core_cache_bytes()
# Of an LSTM in float32, whose R takes 16 U^2 bytes.
KEPT = int((CACHE / 16) ** 0.5)


@pytest.fixture(autouse=True)
def by_the_rule(as_many_threads_as_asked):
    keras_ln_kernels.use_sharing(None)


def sharing(batch, units, threads=2, cell="lstm", steps=100):
    drawn = draw(cell, (1, 1, 1, 1), ())
    this = call_of(drawn, arguments(drawn), ["final_h"], "float32")
    made = problem(this, (batch, steps, 8, units), threads)
    return library().kln_sharing(ctypes.byref(made))


@pytest.mark.parametrize("cell", CELLS)
def test_weights_whose_parts_stay_in_the_caches_go_by_columns(cell):
    """R is so many times a core's cache, and there are two threads."""

    def of(batch, caches):
        gates = CELLS[cell].gates
        return sharing(batch, int((caches * CACHE / 4 / gates) ** 0.5), 2, cell)

    assert of(8, 0.95) == b"rows"
    assert of(8, 1.1) == of(8, 1.9) == b"columns"
    assert of(8, 2.1) == of(8, 15) == b"rows"
    # No cache holds it.
    assert of(8, 17) == of(127, 17) == b"columns"
    # Many rows hide the time in which it is read.
    assert of(127, 1.5) == b"columns"
    assert of(128, 1.5) == of(128, 17) == b"rows"


def test_few_rows_go_by_columns():
    """Unless their part of R is too small for two meetings a step."""
    for batch in range(1, 5):
        assert sharing(batch, 182) == b"columns"
        assert sharing(batch, 180) == b"rows"
    assert sharing(5, min(182, KEPT - 1)) == b"rows"


def test_a_team_is_as_large_as_has_enough_to_do():
    """Three threads have 256 kB each here: more than rows, or rows go first."""
    units = int((3.5 * 2**18 / 16) ** 0.5)
    cores = len(os.sched_getaffinity(0))
    assert sharing(1, units, 8) == b"columns"
    assert sharing(min(3, cores), units, 8) == b"rows"


def test_one_thread_goes_by_rows():
    assert sharing(1, 2 * KEPT, threads=1) == b"rows"
    # Of those that have enough to do.
    assert sharing(1, 8, threads=2, steps=1) == b"rows"


def test_more_threads_than_cores_go_by_rows():
    cores = os.sched_getaffinity(0)
    rows = len(cores)
    assert sharing(rows, 2 * KEPT, len(cores)) == b"columns"
    assert sharing(rows, 2 * KEPT, len(cores) + 1) == b"rows"
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert sharing(1, 2 * KEPT) == b"rows"
    finally:
        os.sched_setaffinity(0, cores)


def test_what_is_chosen_replaces_the_rule():
    keras_ln_kernels.use_sharing("columns")
    assert sharing(128, 8) == b"columns"
    keras_ln_kernels.use_sharing("rows")
    assert sharing(1, 2 * KEPT) == b"rows"
    with pytest.raises(ValueError, match="expected rows or columns.*'both'"):
        keras_ln_kernels.use_sharing("both")
    code = "from test_sharing import sharing; print(sharing({}))"
    for name, sizes in {"columns": "128, 8", "rows": "1, 2000"}.items():
        found = fresh(code.format(sizes), KERAS_LN_KERNELS_SHARING=name)
        assert found == str(name.encode())
    found = fresh(code.format("1, 2000"), KERAS_LN_KERNELS_SHARING="both")
    assert found == "b'columns'"


def test_without_new_threads_it_is_by_rows():
    """With no memory left for their stacks."""
    code = """
import os, resource
from problems import draw, gradients
from test_threads import same
drawn = draw("lstm", (9, 6, 5, 20))
one = gradients(drawn)
k.use_sharing("columns")
here = lambda: len(os.listdir("/proc/self/task"))
before, pages = here(), int(open("/proc/self/statm").read().split()[0])
limits = resource.getrlimit(resource.RLIMIT_AS)
room = pages * resource.getpagesize() + 2**22
resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
same(one, gradients(drawn, threads=8))
assert here() == before
resource.setrlimit(resource.RLIMIT_AS, limits)
same(one, gradients(drawn, threads=8))
print(here() - before)
"""
    assert fresh(code) == "7"
