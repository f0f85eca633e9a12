"""Calls by the names of their arrays, as bindings to frameworks make them."""

import ctypes

import numpy as np
import pytest
from problems import arguments, call_of, draw, final_names, problem, run
from test_arguments import SIZES, fresh

import keras_ln_kernels
from keras_ln_kernels import CELLS, call, xla


def test_small_problems_take_few_threads():
    """By the multiplications of a thread, 2^20 or more."""
    drawn = draw("gru", (1, 1, 1, 1), ())
    this = call_of(drawn, arguments(drawn), ["final_h"])

    def useful(sizes, threads):
        made = problem(this, sizes, threads)
        return call.library().kln_useful_threads(ctypes.byref(made))

    keras_ln_kernels.use_sharing(None)
    assert useful((4, 10, 16, 16), 8) == 1
    # 3 * 256 * 512 * 256 is 96 times 2^20.
    assert useful((32, 8, 256, 256), 8) == 8
    assert useful((32, 8, 256, 256), 100) == 96
    assert useful((0, 8, 256, 256), 8) == 1


def test_a_call_that_the_library_refuses():
    drawn = draw("gru", (2, 3, 4, 5), ("bias",))
    arrays = arguments(drawn) | {"kernel_beta": np.ones(15)}
    message = "kernel_beta: there is no kernel_gamma."
    with pytest.raises(ValueError, match=message):
        run(drawn, arrays, ["final_h"])
    this = call_of(drawn, arrays, ["final_h", "residuals"])
    with pytest.raises(ValueError, match=message):
        this.residual_bytes(call.Sizes(2, 3, 4, 5))


def call_on(addresses, sizes=SIZES, threads=1):
    """A call of a cell without vectors, on memory that need not be there."""
    this = call.Call(
        "simple_rnn",
        "float32",
        ("x", "kernel", "recurrent_kernel"),
        ("final_h",),
        call.options(epsilon=1e-5),
    )
    call.run(this, addresses, call.Sizes(*sizes), threads)


# In the lower and the upper half of all addresses.
NOWHERE = dict.fromkeys(("x", "kernel", "recurrent_kernel"), 64)
NOWHERE["final_h"] = 2**63


def near(rng, count):
    """Sizes on both sides of what is too large, some of them very large."""
    logs = rng.dirichlet(np.full(count, 0.5)) * rng.uniform(36, 54)
    return [max(1, int(2.0**k * rng.uniform(0.3, 1.5))) for k in logs]


def test_residuals_have_exactly_the_bytes_of_their_layout():
    """Up to the largest problem: as Python's numbers, or too large."""
    rng, refused = np.random.default_rng(0), 0
    for _ in range(500):
        batch, steps, features, units = near(rng, 4)
        cell, dtype = [*CELLS][rng.integers(3)], call.DTYPES[rng.integers(2)]
        drawn = draw(
            cell, (1, 1, 1, 1), ("bias", "kernel_gamma")[: rng.integers(3)]
        )
        results = [*final_names(drawn), "residuals"]
        this = call_of(drawn, arguments(drawn), results, dtype)
        made = problem(this, (batch, steps, features, units))

        def wrong(count, made=made):
            made.residual_bytes = count
            return call.library().kln_forward(ctypes.byref(made))

        if wrong(2**63 - 1) == b"the problem is too large":
            refused += 1
            continue
        # A row grows by the same with every cache line of units, and from some
        # number on, features change nothing.
        line = 64 // np.dtype(dtype).itemsize
        one, two = (
            np.array(this.residual_layout(min(features, 100), n), object)
            for n in (line, 2 * line)
        )
        fixed, row, step = one + (-(-units // line) - 1) * (two - one)
        count = fixed + batch * (row + steps * step)
        assert wrong(count - 1) == b"residuals: too small"
        # All arrays stand in one place.
        assert b"overlaps another one" in wrong(count)
    assert 50 < refused < 450


def test_scratch_memory_does_not_overflow():
    """Near the largest sizes there is none, and nothing is touched.

    Were its bytes to overflow, it would be there, and the arrays are not.
    """
    code = """
import numpy as np, pytest
from test_call import NOWHERE, call_on, near
from keras_ln_kernels import use_sharing
use_sharing("rows")
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


def test_no_scratch_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match=r"Sizes\(batch=1024, .*, units=1\)"):
        call_on(NOWHERE, (1024, 512, 2**30, 1), threads=1024)


def test_there_is_a_reason_without_the_header_of_xla(monkeypatch):
    assert xla.unsupported_reason() is None
    monkeypatch.setattr(xla, "library", lambda: object())
    assert "compiled without XLA's header" in xla.unsupported_reason()
