"""Wrong arguments: refused by name, before an address leaves Python."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from problems import draw, sequence

import keras_ln_kernels
from keras_ln_kernels import Sequence, library

B, T, D, U = 2, 3, 4, 5


def arguments(**changes):
    drawn = draw("lstm", (B, T, D, U))
    found = {
        "cell": "lstm",
        "x": drawn.x,
        "initial_states": drawn.states,
        "weights": drawn.weights,
    }
    return found | changes


def with_weight(name, array):
    return {"weights": arguments()["weights"] | {name: array}}


def without(*names):
    weights = arguments()["weights"]
    return {"weights": {n: w for n, w in weights.items() if n not in names}}


def unaligned(shape):
    count = int(np.prod(shape))
    return np.zeros(8 * count + 1, np.uint8)[1:].view("f8").reshape(shape)


X = np.zeros((B, T, D))
WRONG = [
    ({"cell": "lstmm"}, "cell: expected one of"),
    ({"x": [[[1.0]]]}, "x: expected a NumPy array. Received: list"),
    ({"x": np.zeros((T, D))}, "x: expected an array"),
    ({"x": np.zeros((B, 0, D))}, "x: expected an array"),
    ({"x": X.astype("f2")}, "x: expected .* float32 or float64"),
    ({"x": X.astype(X.dtype.newbyteorder())}, "x: expected"),
    ({"x": np.zeros((T, B, D)).swapaxes(0, 1)}, "x: expected a C-contig"),
    ({"x": unaligned((B, T, D))}, "x: .*not aligned"),
    ({"x": np.zeros((B, T, D + 1))}, r"weights\['kernel'\]: .*\(5, 20\)"),
    ({"initial_states": (None,)}, "initial_states: expected a tuple of h, c"),
    ({"initial_states": np.zeros((B, U))}, "initial_states: expected a tup"),
    (
        {"initial_states": (np.zeros((B, U + 1)), None)},
        r"initial_states \(h\): .*shape \(2, 5\)",
    ),
    (
        {"initial_states": (None, np.zeros((B, U), "f4"))},
        r"initial_states \(c\): .*float64.*<f4",
    ),
    (without("kernel"), "there is no 'kernel'"),
    (without("recurrent_kernel"), "there is no 'recurrent_kernel'"),
    (with_weight("gamma", np.zeros(U)), "weights: expected names of .*gamma"),
    (with_weight("bias", None), r"weights\['bias'\]: expected a NumPy array"),
    (with_weight("bias", np.zeros(U)), r"weights\['bias'\]: .*\(20,\)"),
    (with_weight("recurrent_kernel", np.zeros(U)), r"recurrent_kernel'\]: "),
    (
        with_weight("recurrent_kernel", np.zeros((U, 3 * U))),
        r"recurrent_kernel'\]: .*\(5, 20\)",
    ),
    (without("kernel_gamma"), "kernel_beta: there is no kernel_gamma"),
    (without("state_gamma"), "state_beta: there is no state_gamma"),
    (
        without("state_gamma", "state_beta") | {"carry_normalized_state": True},
        "carry_normalized_state: there is no state_gamma",
    ),
    ({"mask": np.ones((B, T))}, "mask: expected .* bool or uint8"),
    ({"zoneout": np.ones((B, T, U))}, "zoneout: expected .* bool or uint8"),
    (
        {"cell_zoneout": np.ones((T, B, U), bool)},
        r"cell_zoneout: .*\(2, 3, 5\)",
    ),
    ({"zoneout": "0.1"}, "zoneout: expected a number. Received: '0.1'"),
    ({"zoneout": 1.0}, r"zoneout_share, .*must be in \[0, 1\)"),
    ({"cell_zoneout": -0.1}, r"cell_zoneout_share: must be in \[0, 1\)"),
    ({"zoneout": float("nan")}, r"zoneout_share, .*must be in \[0, 1\)"),
    ({"mask": np.ones((B, T, 1), bool)}, r"mask: .*shape \(2, 3\)"),
    ({"input_mask": np.ones((B, U))}, r"input_mask: .*\(2, 4\)"),
    ({"recurrent_mask": np.ones((B, D))}, r"recurrent_mask: .*\(2, 5\)"),
    ({"recurrent_mask": np.ones((B, U), "f4")}, "recurrent_mask: .*<f4"),
    ({"epsilon": 0.0}, "epsilon: must be positive and finite"),
    ({"epsilon": float("nan")}, "epsilon: must be positive and finite"),
    ({"epsilon": "1"}, "epsilon: expected a number"),
    ({"threads": 0}, "threads: expected a positive integer"),
    ({"threads": 1.5}, "threads: expected a positive integer"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_problem(changes, message):
    Sequence(**arguments())
    with pytest.raises((TypeError, ValueError), match=message):
        Sequence(**arguments(**changes))


def read_only(shape):
    array = np.zeros(shape)
    array.flags.writeable = False
    return array


WRONG_FORWARD = [
    ({"outputs": np.zeros((B, T, D))}, r"outputs: .*\(2, 3, 5\)"),
    ({"outputs": read_only((B, T, U))}, "outputs: expected a writeable"),
    (
        {"outputs": np.zeros((B, T, U)), "return_outputs": False},
        "outputs: given, but return_outputs is False",
    ),
    ({"final_states": (np.zeros((B, U)),)}, "final_states: expected a tup"),
    ({"final_states": (np.zeros((B, U)), None)}, r"final_states \(c\): exp"),
    (
        {"final_states": (np.zeros((B, U)), np.zeros((U, B)).T)},
        r"final_states \(c\): expected .*C-contiguous",
    ),
    ({"residuals": np.zeros(9, "u1")}, "residuals: given, but training"),
    (
        {"residuals": np.zeros(9, "u1"), "training": True},
        "residuals: expected .* uint8 and shape",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_FORWARD)
def test_wrong_forward(changes, message):
    sequence = Sequence(**arguments())
    with pytest.raises((TypeError, ValueError), match=message):
        sequence.forward(**changes)


WRONG_BACKWARD = [
    ({"residuals": None}, "residuals: expected a NumPy array"),
    ({"residuals": np.zeros(9, "u1")}, "residuals: expected"),
    ({"d_outputs": np.zeros((B, T, D))}, r"d_outputs: .*\(2, 3, 5\)"),
    ({"d_final_states": (None,)}, "d_final_states: expected a tuple"),
    (
        {"d_final_states": (np.zeros((B, D)), None)},
        r"d_final_states \(h\): .*\(2, 5\)",
    ),
    ({"d_x": np.zeros((B, T, U))}, r"d_x: .*\(2, 3, 4\)"),
    ({"d_x": X, "needs_x": False}, "d_x: given, but needs_x"),
    (
        {"d_initial_states": (np.zeros((B, U)), np.zeros((B, D)))},
        r"d_initial_states \(c\): ",
    ),
    ({"d_weights": {}}, "d_weights: expected the names kernel, "),
    (
        {"d_weights": arguments()["weights"] | {"bias": read_only(4 * U)}},
        r"d_weights\['bias'\]: expected a writeable",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_BACKWARD)
def test_wrong_backward(changes, message):
    sequence = Sequence(**arguments())
    residuals = sequence.forward(training=True).residuals
    with pytest.raises((TypeError, ValueError), match=message):
        sequence.backward(**{"residuals": residuals} | changes)


def test_residuals_in_odd_places_are_refused():
    sequence = Sequence(**arguments())
    odd = np.zeros(sequence.residual_bytes + 3, np.uint8)[3:]
    message = "residuals: not aligned to 16 bytes"
    with pytest.raises(ValueError, match=message):
        sequence.forward(training=True, residuals=odd)
    with pytest.raises(ValueError, match=message):
        sequence.backward(odd)


def test_what_other_cells_do_not_have():
    gru = draw("gru", (B, T, D, U))
    states = (*gru.states, *gru.states)
    with pytest.raises(ValueError, match="initial_states: .*of h"):
        sequence(gru._replace(states=states))
    with pytest.raises(ValueError, match="carry_normalized_state.*LSTM only"):
        sequence(gru, carry_normalized_state=True)
    rnn = draw("simple_rnn", (B, T, D, U), {"beta"})
    with pytest.raises(ValueError, match="kernel_beta: there is no"):
        sequence(rnn)


def test_a_struct_of_another_version_is_refused():
    problem = Sequence(**arguments())._problem
    for field in ("abi_version", "struct_bytes"):
        other = type(problem).from_buffer_copy(problem)
        setattr(other, field, getattr(other, field) + 1)
        wrong = library.library().kln_forward(other, library.Forward())
        assert b"another version" in wrong
        assert library.library().kln_residual_bytes(other) == -1


def test_missing_pointers_are_refused():
    functions = library.library()
    problem = Sequence(**arguments())._problem
    assert b"final_h" in functions.kln_forward(problem, library.Forward())
    assert b"residuals" in functions.kln_backward(problem, library.Backward())
    assert b"NULL" in functions.kln_forward(None, None)
    for name in ("x", "kernel", "recurrent_kernel"):
        other = type(problem).from_buffer_copy(problem)
        setattr(other, name, None)
        wrong = functions.kln_forward(other, library.Forward())
        assert wrong.startswith(f"{name}: NULL".encode())


def test_sizes_that_overflow_are_refused():
    problem = Sequence(**arguments())._problem
    other = type(problem).from_buffer_copy(problem)
    other.batch, other.steps = 2**31, 2**31
    assert library.library().kln_residual_bytes(other) == -1
    wrong = library.library().kln_forward(other, library.Forward())
    assert b"too large" in wrong


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
            Sequence(**arguments())
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
