"""Threads: the library's own, an OpenMP library's, a caller's.

Nothing here is an OpenMP library: Python's threads stand in, so that the thread
sanitizer sees all.
"""

import ctypes
import faulthandler
import os
import signal
import threading
import time

import pytest
from problems import draw, forward, gradients, use_threads_of
from test_arguments import fresh

import keras_ln_kernels
from keras_ln_kernels.library import OpenMP

CELLS = ["lstm", "gru", "simple_rnn"]
ALL = ("mask", "input_mask", "recurrent_mask")


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def finish(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_child(right):
    """Forks; fails unless `right` is true in the child."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            os._exit(not right())
        finally:  # What it raised.
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


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
        finish(threads)

    drawn = draw("gru", (7, 9, 70, 40), masks=ALL)
    expected = gradients(drawn)
    use_threads_of(monkeypatch, parallel_for, 42)
    same(expected, gradients(drawn, threads=3))
    assert set(calls) == {(42, 3)}


def test_signals_come_to_the_programs_own_threads():
    """The pool's let `sigwait` have its signal, however often it is sent."""
    code = """
import os, signal
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
    fresh(code, OMP_NUM_THREADS="1")


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
            check_child(
                lambda: (
                    same(gradients(drawn, threads=3), expected)
                    or len(os.listdir("/proc/self/task")) == 3
                )
            )
    finally:
        done.set()
        for thread in threads:
            thread.join()


@pytest.fixture(autouse=True)
def nothing_waits_for_ever():
    """Ends the process and says where it was; no exception could."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Team:
    """Lends threads as GOMP_parallel does: `openmp` has the two addresses.

    Args:
        size: how many, with the caller's.
        late: whether the others come when the caller has finished.
        needless: how many have left when the caller begins.
        stays: for how many seconds the others stay when it has.
    """

    def __init__(self, size, *, late=False, stays=0.0, needless=0):
        """Nothing was lent so far."""
        self.late, self.stays, self.needless = late, stays, needless
        # Of all times that it lent: how many at once, and the arguments.
        self.at_once, self.asked = [], []
        self._now, self._lock, self._here = 0, threading.Lock(), {}
        self._size = size
        kind = ctypes.CFUNCTYPE(
            None, BODY, ctypes.c_void_p, *[ctypes.c_uint] * 2
        )
        self._functions = (
            kind(self._parallel),
            ctypes.CFUNCTYPE(ctypes.c_int)(self._threads),
        )
        self.openmp = OpenMP(
            *(ctypes.cast(f, ctypes.c_void_p).value for f in self._functions)
        )

    def _parallel(self, body, context, threads, flags):
        with self._lock:
            self._now += 1
            self.at_once.append(self._now)
            self.asked.append((threads, flags))
            self._here[threading.get_ident()] = self._size

        left = threading.Semaphore(0)

        def other():
            body(context)
            left.release()
            time.sleep(self.stays)

        others = [threading.Thread(target=other) for _ in range(self._size - 1)]
        if self.late:
            body(context)
        for thread in others:
            thread.start()
        if not self.late:
            needed = [left.acquire(timeout=60) for _ in range(self.needless)]
            assert all(needed)
            body(context)
        for thread in others:
            thread.join()
        with self._lock:
            self._now -= 1
            del self._here[threading.get_ident()]

    def _threads(self):
        return self._here[threading.get_ident()]


# More than there are rows, fewer than are asked for and more, and the caller
# alone, as within another team's work.
@pytest.mark.parametrize("size", [1, 2, 3, 16])
@pytest.mark.parametrize("cell", CELLS)
def test_results_do_not_depend_on_who_came(cell, size, each_sharing):
    drawn = draw(cell, (7, 9, 70, 40), masks=ALL)
    one = gradients(drawn)
    team = Team(size)
    for threads in (2, 3, 8):
        same(one, gradients(drawn, threads=threads, openmp=team.openmp))
    # Forwards and backwards each, of a size that the library chooses: GNU's
    # would end its threads and start them anew where sizes change.
    assert team.asked == [(0, 0)] * 6


def test_one_thread_needs_no_team(each_sharing):
    team = Team(2)
    gradients(draw("gru", (4, 3, 2, 5)), threads=1, openmp=team.openmp)
    assert not team.asked


def test_no_other_threads_take_part():
    """All of the team do: by columns each waits for all others.

    This process came from a fork, and has run a program since.
    """
    code = """
import os, threading, time
from problems import draw, gradients
from test_threads import Team
k.use_sharing("columns")
drawn = draw("lstm", (9, 6, 5, 20))
# A sanitizer has a thread of its own from the first one on.
thread = threading.Thread(target=int)
thread.start()
thread.join()
time.sleep(0.1)
here = lambda: len(os.listdir("/proc/self/task"))
before, team = here(), Team(4)
gradients(drawn, threads=4, openmp=team.openmp)
# The system ends threads a little after they have returned.
for _ in range(500):
    if here() == before: break
    time.sleep(0.01)
print(here() - before, len(team.asked), end=" ")
gradients(drawn, threads=4)
print(here() - before)
"""
    assert fresh(code) == "0 2 3"


def test_eight_callers_at_once_lend_one_after_the_other(each_sharing):
    """There are cores for one team; who finds another at work is alone."""
    problems = [draw(CELLS[i % 3], (9, 6, 5, 20 + i), seed=i) for i in range(8)]
    expected = [gradients(drawn) for drawn in problems]
    team, wrong = Team(3), []

    def work(drawn, expected):
        try:
            for _ in range(10):
                same(expected, gradients(drawn, threads=3, openmp=team.openmp))
        except Exception as error:  # A thread would drop it.
            wrong.append(error)

    finish(
        [
            threading.Thread(target=work, args=pair)
            for pair in zip(problems, expected, strict=True)
        ]
    )
    assert not wrong
    assert set(team.at_once) == {1}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_takes_the_librarys_own_threads(each_sharing):
    """Those of an OpenMP library are gone there, and GNU's waits for them."""
    drawn, team = draw("lstm", (9, 6, 5, 20)), Team(3)
    expected = gradients(drawn, threads=3, openmp=team.openmp)
    lent = len(team.asked)
    check_child(
        lambda: (
            same(gradients(drawn, threads=3, openmp=team.openmp), expected)
            or len(team.asked) == lent
        )
    )
    same(expected, gradients(drawn, threads=3, openmp=team.openmp))
    assert len(team.asked) > lent


def test_a_team_that_is_late_is_left_out_for_some_calls():
    """4 of them, and 8 where it is late again; the results are the same."""
    code = """
from problems import draw, gradients
from test_threads import Team, same
drawn = draw("lstm", (8, 10, 64, 64))
one, team = gradients(drawn), Team(2, stays=0.3)
# Two calls each.
for _ in range(9):
    before = len(team.asked)
    same(one, gradients(drawn, threads=2, openmp=team.openmp))
    print(len(team.asked) - before, end="")
"""
    assert fresh(code) == "101000010"
