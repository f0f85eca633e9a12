"""Threads: equal results for any number, fork, many callers at once."""

import ctypes
import multiprocessing
import os
import threading

import numpy as np
import pytest
from problems import draw, gradients, sequence

import keras_ln_kernels
from keras_ln_kernels import library

CELLS = ["lstm", "gru", "simple_rnn"]
ALL = ("mask", "input_mask", "recurrent_mask")


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


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


def test_a_batch_of_several_parts():
    drawn = draw("lstm", (1030, 3, 2, 3), masks=ALL)
    one = gradients(drawn, threads=1)
    for threads in (2, 3):
        same(one, gradients(drawn, threads=threads))


@pytest.mark.parametrize("order", ["reversed", "threads"])
def test_the_callers_own_parallel_for(order):
    """Tasks in any order, on threads that are not the library's."""
    task_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    calls = []

    @ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, task_type, ctypes.c_void_p
    )
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
    problem = sequence(drawn, threads=3)
    struct = problem._problem
    struct.parallel_for = ctypes.cast(parallel_for, ctypes.c_void_p).value
    struct.parallel_context = 42
    result = problem.forward(training=True)
    found = problem.backward(
        result.residuals,
        d_outputs=drawn.d_outputs,
        d_final_states=drawn.d_states,
    )
    assert set(calls) == {(42, 3)}
    assert found.x.tobytes() == expected["d_x"].tobytes()
    for name, gradient in found.weights.items():
        assert gradient.tobytes() == expected[f"d_{name}"].tobytes()


def test_eight_callers_at_once():
    problems = [draw(CELLS[i % 3], (9, 6, 5, 20 + i), seed=i) for i in range(8)]
    expected = [gradients(drawn) for drawn in problems]
    wrong = []

    def work(drawn, expected):
        try:
            for _ in range(20):
                same(expected, gradients(drawn, threads=3))
        except Exception as error:  # A thread would drop it.
            wrong.append(error)

    threads = [
        threading.Thread(target=work, args=pair)
        for pair in zip(problems, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def in_child(queue):
    drawn = draw("lstm", (9, 6, 5, 20))
    found = gradients(drawn, threads=3)
    threads = len(os.listdir("/proc/self/task"))
    found = {name: array.tobytes() for name, array in found.items()}
    queue.put((found, threads))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    """The parent's pool is there in the child, but none of its threads."""
    drawn = draw("lstm", (9, 6, 5, 20))
    expected = gradients(drawn, threads=3)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,), daemon=True)
    child.start()
    found, threads = queue.get(timeout=20)
    child.join(timeout=20)
    assert child.exitcode == 0
    assert threads == 3
    assert found == {name: a.tobytes() for name, a in expected.items()}
    same(expected, gradients(drawn, threads=3))


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_does_not_grow():
    drawn = draw("lstm", (20, 10, 8, 32))
    problem = sequence(drawn, threads=2)
    result = problem.forward(training=True)
    into = {
        "outputs": result.outputs,
        "final_states": result.final_states,
        "residuals": result.residuals,
    }
    found = problem.backward(result.residuals)
    buffers = {
        "d_x": found.x,
        "d_initial_states": found.initial_states,
        "d_weights": found.weights,
    }

    def steps(count):
        for _ in range(count):
            problem.forward(training=True, **into)
            problem.backward(result.residuals, **buffers)

    steps(20)
    before = resident_bytes()
    steps(1000)
    # A byte more a step would be 1 kB; a leaked piece of scratch, 300 MB.
    assert resident_bytes() - before < 2e6
    keras_ln_kernels.release_scratch()
    steps(1)


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
