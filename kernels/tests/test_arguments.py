"""What the library refuses, and which library it is."""

import ctypes
import mmap
import os
import subprocess
import sys

import numpy as np
import pytest
from problems import (
    arguments,
    backward,
    call_of,
    draw,
    forward,
    run,
    use_threads_of,
)

import keras_ln_kernels
from keras_ln_kernels import call, library

SIZES = B, T, D, U = 2, 3, 4, 5
UNIT, GATES = np.ones(U), np.ones(4 * U)
CHOICES = np.ones((B, T, U), bool)
# The cell, what changes in its weights (None: left out) and its options.
WRONG = [
    ("lstm", {"kernel_gamma": None}, {}, "kernel_beta: there is no kernel_gam"),
    ("lstm", {"recurrent_gamma": None}, {}, "recurrent_beta: there is no recu"),
    ("lstm", {"state_gamma": None}, {}, "state_beta: there is no state_gamma"),
    (
        "lstm",
        {"state_gamma": None, "state_beta": None},
        {"carry_normalized_state": True},
        "carry_normalized_state: there is no state_gamma",
    ),
    ("gru", {}, {"carry_normalized_state": True}, "carry_norm.*: LSTM only"),
    ("gru", {"state_gamma": UNIT}, {}, "state_gamma.*: LSTM only"),
    ("gru", {}, {"cell_zoneout": CHOICES}, "cell_zoneout: LSTM only"),
    ("gru", {}, {"cell_zoneout": 0.5}, "cell_zoneout: LSTM only"),
    ("lstm", {"recurrent_bias": GATES}, {}, "recurrent_bias: GRU only"),
    ("simple_rnn", {"recurrent_gamma": UNIT}, {}, "recurrent_gamma: not in a"),
    ("lstm", {}, {"zoneout": 1.0}, r"zoneout_share, .*must be in \[0, 1\)"),
    ("lstm", {}, {"cell_zoneout": -0.1}, "cell_zoneout_share: must be in"),
    ("lstm", {}, {"zoneout": float("nan")}, "zoneout_share, .*must be in"),
    ("lstm", {}, {"epsilon": 0.0}, "epsilon: must be positive and finite"),
    ("lstm", {}, {"epsilon": float("nan")}, "epsilon: must be positive and"),
    ("lstm", {}, {"epsilon": float("inf")}, "epsilon: must be positive and"),
]


@pytest.mark.parametrize("cell, weights, options, message", WRONG)
def test_a_problem_that_is_refused(cell, weights, options, message):
    drawn = draw(cell, SIZES, **options)
    kept = {n: w for n, w in (drawn.weights | weights).items() if w is not None}
    drawn = drawn._replace(weights=kept)
    with pytest.raises(ValueError, match=f"{message}.*\\.$"):
        forward(drawn)
    with pytest.raises(ValueError, match="the library refuses Call"):
        forward(drawn, training=True)


def call_on(addresses, sizes=SIZES, threads=1, cell="simple_rnn", **more):
    """A call of a cell without vectors, on memory that need not be there."""
    this = call.Call(
        cell,
        "float32",
        1e-5,
        False,
        False,
        ("x", "kernel", "recurrent_kernel"),
        ("final_h",),
        **more,
    )
    call.run(this, addresses, call.Sizes(*sizes), threads)


# In the lower and the upper half of all addresses.
NOWHERE = dict.fromkeys(("x", "kernel", "recurrent_kernel"), 64)
NOWHERE["final_h"] = 2**63


@pytest.mark.parametrize("place", range(4))
def test_sizes_of_zero_are_refused(place):
    sizes = [*SIZES]
    sizes[place] = 0
    with pytest.raises(ValueError, match="must be positive"):
        call_on(NOWHERE, sizes)


def test_no_threads_are_refused():
    with pytest.raises(ValueError, match="threads: must be positive"):
        call_on(NOWHERE, threads=0)


@pytest.mark.parametrize("name", NOWHERE)
def test_missing_pointers_are_refused(name):
    with pytest.raises(ValueError, match=f"^{name}: NULL"):
        call_on(NOWHERE | {name: None})


def test_missing_structs_are_refused():
    functions = library.library()
    assert b"NULL" in functions.kln_forward(None, None)
    drawn = draw("lstm", SIZES)
    with pytest.raises(ValueError, match="final_c: NULL"):
        run(drawn, arguments(drawn), ["final_h"])


def test_residuals_in_odd_places_are_refused():
    drawn = draw("lstm", SIZES)
    residuals = forward(drawn, training=True)["residuals"]
    odd = np.zeros(residuals.size + 3, "u1")[3:]
    odd[:] = residuals
    with pytest.raises(ValueError, match="residuals: not aligned to 16 bytes"):
        backward(drawn, odd)


def overlapping(shape, other, shift):
    """An array that starts `shift` elements after another one."""
    memory = np.zeros(4 * other.size + 4 * np.prod(shape))
    start = 2 * other.size
    memory[start : start + other.size] = other.ravel()
    start += shift
    return (
        memory[start - shift : start - shift + other.size].reshape(other.shape),
        memory[start : start + np.prod(shape)].reshape(shape),
    )


@pytest.mark.parametrize("shift", ["before", "same", "after"])
@pytest.mark.parametrize("read", ["x", "initial_h", "kernel", "bias"])
def test_results_that_overlap_arguments_are_refused(read, shift):
    drawn = draw("lstm", SIZES)
    arrays = arguments(drawn)
    shape = (B, U)
    shift = {"before": -B * U + 1, "same": 0, "after": arrays[read].size - 1}[
        shift
    ]
    arrays[read], into = overlapping(shape, arrays[read], shift)

    def make(wanted, dtype):
        return into if wanted == shape else np.zeros(wanted, dtype)

    with pytest.raises(ValueError, match="written to overlaps another one"):
        run(drawn, arrays, ["outputs", "final_h", "final_c"], make=make)
    # Side by side they may stand.
    beside = arrays[read].size if shift >= 0 else -B * U
    arrays[read], into = overlapping(shape, arrays[read], beside)
    # Both states would have the same place.
    with pytest.raises(ValueError, match="written to overlaps another one"):
        run(drawn, arrays, ["outputs", "final_h", "final_c"], make=make)
    finals = iter([into, np.zeros(shape)])
    run(drawn, arrays, ["final_h", "final_c"], make=lambda *_: next(finals))


def test_gradients_that_overlap_are_refused():
    drawn = draw("gru", SIZES)
    residuals = forward(drawn, training=True)["residuals"]

    def into(array):
        return lambda shape, _: array.reshape(shape)

    for array in (drawn.d_outputs, drawn.d_states[0], residuals):
        count = B * U
        memory = array.view("f8").ravel()[:count]
        with pytest.raises(ValueError, match="written to overlaps another"):
            backward(
                drawn, residuals, wanted=["d_initial_h"], make=into(memory)
            )


def test_a_struct_of_another_version_is_refused():
    drawn = draw("lstm", SIZES)
    this = call_of(drawn, arguments(drawn), ["final_h"])
    for field in ("abi_version", "struct_bytes"):
        problem = call._problem(this, call.Sizes(*SIZES))
        setattr(problem, field, getattr(problem, field) + 1)
        wrong = library.library().kln_forward(problem, library.Forward())
        assert b"another version" in wrong
        assert library.library().kln_residual_bytes(problem) == -1


def near(rng, count):
    """Sizes on both sides of what is too large, some of them very large."""
    logs = rng.dirichlet(np.full(count, 0.5)) * rng.uniform(36, 54)
    return [max(1, int(2.0**k * rng.uniform(0.3, 1.5))) for k in logs]


def test_bytes_of_residuals_do_not_overflow():
    """Up to the largest problem: as Python's numbers, or too large."""
    rng, refused = np.random.default_rng(0), 0
    for _ in range(500):
        batch, steps, features, units = near(rng, 4)
        cell = [*keras_ln_kernels.CELLS][rng.integers(3)]
        this = call.Call(cell, "float64", 1e-5, False, False, (), ())
        sizes = call.Sizes(batch, steps, features, units)
        problem = call._problem(this, sizes)
        for name in ("x", "kernel", "recurrent_kernel"):
            setattr(problem, name, 64)
        found = library.library().kln_residual_bytes(problem)
        if found < 0:
            refused += 1
            continue
        padded = -(-units // 8) * 8
        of_step = {"lstm": 2 * 4 + 2, "gru": 2 * 3 + 1, "simple_rnn": 2}[cell]
        if cell == "lstm" or (cell == "gru" and features <= 64):
            # Without norms the sum is kept; x W is computed again.
            of_step -= {"lstm": 4, "gru": 3}[cell]
        states = 2 if cell == "lstm" else 1
        norms = {"lstm": 3, "gru": 4, "simple_rnn": 1}[cell]
        exact = (
            8
            * batch
            * (steps * (of_step * padded + 3 * norms) + states * padded)
        )
        assert 0 <= found - exact < 2000
    assert 50 < refused < 450


def test_scratch_memory_does_not_overflow():
    """Near the largest sizes there is none, and nothing is touched.

    Were its bytes to overflow, it would be there, and the arrays are not.
    """
    code = """
import numpy as np, pytest
from test_arguments import NOWHERE, call_on, near
from keras_ln_kernels.library import library
library().kln_useful_threads = lambda problem: problem.threads
rng, none = np.random.default_rng(0), 0
for _ in range(20000):
    sizes = batch, steps, features, units = near(rng, 4)
    # Every row has a task, which gathers x of up to 128 steps: more bytes than
    # there are addresses.
    if batch * min(steps, 128) * features < 2**45:
        continue
    with pytest.raises((MemoryError, ValueError)) as caught:
        call_on(NOWHERE, sizes, [batch, 2**63 - 1][rng.integers(2)])
    if caught.type is MemoryError:
        none += 1
    else:
        assert "too large" in str(caught.value)
assert none > 30, none
"""
    fresh(code)


def test_rows_without_number(monkeypatch):
    """2^36 of them, in memory that is there where it is touched.

    A task takes the rows that are its own; of these tasks some are run.
    """
    rows, tasks, run_too = 2**36, 2**15, {0, 2**14 - 1, 2**15 - 1}
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    x, h = (
        np.frombuffer(mmap.mmap(-1, 4 * rows, flags=flags), "f4")
        for _ in range(2)
    )
    edge = rows // tasks
    watched = [task * edge + k for task in run_too for k in (0, edge - 1)]
    x[watched] = np.linspace(-1, 1, len(watched))
    weights = np.array([[0.5]], "f4"), np.array([[2.0]], "f4")
    rounds = []

    def parallel_for(context, count, task, task_context):
        rounds.append(count)
        # The kernels are packed first.
        for i in range(count) if len(rounds) == 1 else run_too:
            task(task_context, i)

    use_threads_of(monkeypatch, parallel_for)
    addresses = zip(NOWHERE, (x, *weights, h), strict=True)
    call_on({n: a.ctypes.data for n, a in addresses}, (rows, 1, 1, 1), tasks)
    assert rounds == [tasks, tasks]
    expected = np.tanh(0.5 * x[watched])
    np.testing.assert_allclose(h[watched], expected, rtol=1e-6)


def test_no_scratch_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match=r"Sizes\(batch=1024, .*, units=1\)"):
        call_on(NOWHERE, (1024, 512, 2**30, 1), threads=1024)


def test_the_choice_of_instruction_set(each_instruction_set):
    assert keras_ln_kernels.instruction_set() == each_instruction_set
    with pytest.raises(ValueError, match="no such instruction set.*'sse'"):
        keras_ln_kernels.use_instruction_set("sse")
    assert keras_ln_kernels.instruction_set() == each_instruction_set


def fresh(code, **environment):
    """What a new process prints."""
    return subprocess.run(
        [sys.executable, "-c", f"import keras_ln_kernels as k; {code}"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
        | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_the_environment_chooses(each_instruction_set):
    code = "print(k.instruction_set())"
    chosen = fresh(code, KERAS_LN_KERNELS_ISA=each_instruction_set)
    assert chosen == each_instruction_set
    keras_ln_kernels.use_instruction_set(None)
    best = keras_ln_kernels.instruction_set()
    assert fresh(code, KERAS_LN_KERNELS_ISA="sse") == best


def test_a_library_that_cannot_be_used(tmp_path):
    code = "print(k.unsupported_reason())"
    missing, broken = tmp_path / "missing.so", tmp_path / "broken.so"
    broken.write_text("no library")
    reason = fresh(code, KERAS_LN_KERNELS_LIBRARY=str(missing))
    assert reason.startswith(f"{missing} is missing")
    reason = fresh(code, KERAS_LN_KERNELS_LIBRARY=str(broken))
    assert reason.startswith(f"{broken} does not load")
    assert keras_ln_kernels.unsupported_reason() is None


def test_a_library_of_another_version(monkeypatch):
    library._load.cache_clear()
    other = library.ABI_VERSION + 1
    monkeypatch.setattr(library, "ABI_VERSION", other)
    message = f"needs version {other}: install it"
    try:
        with pytest.raises(RuntimeError, match=message):
            keras_ln_kernels.instruction_set()
    finally:
        library._load.cache_clear()


def test_structs_have_the_sizes_of_the_header():
    """Every field of the header, in its order."""
    path = os.path.join(os.path.dirname(__file__), "../src/keras_ln_kernels.h")
    with open(path) as file:
        text = file.read()
    for struct in (library.Problem, library.Forward, library.Backward):
        start = text.index(f"typedef struct Kln{struct.__name__}")
        body = text[start : text.index("}", start)]
        position = 0
        for name, kind in struct._fields_:
            position = body.index(name, position) + len(name)
            assert ctypes.sizeof(kind) in (4, 8)
