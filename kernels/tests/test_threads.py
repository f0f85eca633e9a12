"""Threads: equal results for any number, fork, many callers at once."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from problems import draw, forward, gradients, use_threads_of

import keras_ln_kernels
from keras_ln_kernels import library

CELLS = ["lstm", "gru", "simple_rnn"]
ALL = ("mask", "input_mask", "recurrent_mask")


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


@pytest.mark.promise("do not depend on the number of threads")
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "sizes", [(1, 5, 3, 4), (2, 5, 3, 4), (7, 9, 70, 40), (37, 20, 3, 66)]
)
def test_results_do_not_depend_on_the_number_of_threads(
    cell, dtype, sizes, each_instruction_set
):
    drawn = draw(cell, sizes, masks=ALL)
    one = gradients(drawn, dtype, threads=1)
    for threads in (2, 3, 16, 40):
        same(one, gradients(drawn, dtype, threads=threads))


# WNLSTM is an LSTM without vectors here. The first has fewer rows, the second
# fewer lines of columns than threads, the third more rows than a group.
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("vectors", [None, ()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "sizes", [(3, 6, 70, 100), (9, 5, 3, 4), (131, 3, 5, 36), (5, 4, 66, 129)]
)
def test_by_columns_results_are_those_by_rows(
    cell, vectors, dtype, sizes, each_instruction_set
):
    masks = (*ALL, "zoneout", "starts", "resets")
    drawn = draw(cell, sizes, vectors, masks=masks)
    one = gradients(drawn, dtype)
    inference = forward(drawn, dtype)
    keras_ln_kernels.use_sharing("columns")
    for threads in range(1, 9):
        same(one, gradients(drawn, dtype, threads=threads))
        same(inference, forward(drawn, dtype, threads=threads))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("units", [48, 100])
def test_few_rows_change_nothing(cell, dtype, units, each_instruction_set):
    """Matrices that one row reads as they lie, many rows read packed."""
    many = draw(cell, (60, 2, 70, units), masks=("starts", "resets"))
    packed = forward(many, dtype, threads=2)
    keras_ln_kernels.use_sharing("columns")
    for threads in (1, 2, 3):
        for row in (0, 59):
            one = many._replace(
                x=many.x[row : row + 1],
                states=tuple(s[row : row + 1] for s in many.states),
                options={
                    name: a[row : row + 1] if hasattr(a, "shape") else a
                    for name, a in many.options.items()
                },
            )
            few = forward(one, dtype, threads=threads)
            same(few, {n: a[row : row + 1] for n, a in packed.items()})


@pytest.mark.parametrize("order", ["reversed", "threads"])
def test_the_callers_own_parallel_for(order, monkeypatch):
    """Tasks in any order, on threads that are not the library's."""
    calls = []

    def parallel_for(context, count, task, task_context):
        calls.append((context, count))
        if order == "reversed":
            for i in reversed(range(count)):
                task(task_context, i)
            return
        threads = [
            threading.Thread(target=task, args=(task_context, i))
            for i in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    drawn = draw("gru", (7, 9, 70, 40), masks=ALL)
    expected = gradients(drawn)
    use_threads_of(monkeypatch, parallel_for, 42)
    same(expected, gradients(drawn, threads=3))
    assert set(calls) == {(42, 3)}


def test_signals_come_to_the_programs_own_threads():
    """The pool's let `sigwait` have its signal, however often it is sent."""
    code = """
import os, signal, sys
from problems import draw, gradients
from keras_ln_kernels import use_sharing
use_sharing("columns")
gradients(draw("gru", (8, 2, 3, 4)), threads=8)
assert len(os.listdir("/proc/self/task")) >= 8
# As programs do that wait for a signal: in every thread that they start.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for _ in range(50):
    os.kill(os.getpid(), signal.SIGUSR1)
    assert signal.sigtimedwait([signal.SIGUSR1], 5) is not None
# And the thread that started them still gets what it did before.
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1}
"""
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=100,
    )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_others_are_at_work(each_sharing):
    """The child has a pool of its own, whatever the parent's is doing."""
    drawn = draw("lstm", (9, 6, 5, 20))
    expected = gradients(drawn)
    done = threading.Event()

    def work():
        while not done.is_set():
            gradients(drawn, threads=3)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                found = gradients(drawn, threads=3)
                right = all(
                    array.tobytes() == expected[name].tobytes()
                    for name, array in found.items()
                )
                alive = len(os.listdir("/proc/self/task"))
                os._exit(0 if right and alive == 3 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("dtype", [0, 1])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (5, 7, 3), (6, 16, 16), (13, 513, 65), (64, 100, 130)]
)
def test_product(sizes, dtype, each_instruction_set):
    rows, depth, columns = sizes
    rng = np.random.default_rng(0)
    a = rng.normal(size=(rows, depth)).astype(["f4", "f8"][dtype])
    b = rng.normal(size=(depth, columns)).astype(a.dtype)
    c = np.full((rows, columns), np.nan, a.dtype)
    pointers = (x.ctypes.data for x in (a, b, c))
    assert library.library().kln_product(dtype, *sizes, *pointers, 2) is None
    exact = a.astype("f8") @ b.astype("f8")
    assert np.abs(c - exact).max() < np.finfo(a.dtype).eps * 2 * depth
