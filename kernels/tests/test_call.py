"""Calls by the names of their arrays, as bindings to frameworks make them."""

import ctypes

import numpy as np
import pytest
from problems import arguments, call_of, draw, run

from keras_ln_kernels import CELLS, call, xla


@pytest.mark.parametrize("dtype", call.DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_residuals_have_a_size_without_waste(cell, dtype):
    """Whatever the sizes, as a sum of products of batch and steps."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        batch, steps, features, units = map(int, rng.integers(1, 100, 4))
        vectors = ("bias", "kernel_gamma")[: rng.integers(3)]
        sizes = call.Sizes(batch, steps, features, units)
        drawn = draw(cell, (1, 1, 1, 1), vectors)
        arrays = arguments(drawn)
        this = call_of(drawn, arrays, ["residuals"], dtype)
        problem = call._problem(this, sizes)
        for name in arrays:
            setattr(problem, name, 64)
        needed = call.library().kln_residual_bytes(problem)
        assert needed <= this.residual_bytes(sizes) < needed + 128


def test_small_problems_take_few_threads():
    """By the multiplications of a thread, 2^20 or more."""
    drawn = draw("gru", (1, 1, 1, 1), ())
    this = call_of(drawn, arguments(drawn), ["final_h"])

    def useful(sizes, threads):
        problem = call._problem(this, call.Sizes(*sizes), threads)
        for name in ("x", "kernel", "recurrent_kernel"):
            setattr(problem, name, 64)
        # The function itself: tests put another one in its place.
        function = call.library()["kln_useful_threads"]
        function.restype = ctypes.c_int64
        return function(ctypes.byref(problem))

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
    with pytest.raises(ValueError, match="the library refuses"):
        this.residual_bytes(call.Sizes(2, 3, 4, 5))
    # One step of 64 rows is allowed, and two are too large.
    right = call_of(drawn, arguments(drawn), ["final_h", "residuals"])
    with pytest.raises(ValueError, match="refuses.* of 115000000000 features"):
        right.residual_bytes(call.Sizes(1, 1, 115_000_000_000, 1))


def test_bits_of_a_custom_call_follow_the_order_of_the_structs():
    drawn = draw("lstm", (2, 3, 4, 5), ("bias",), masks=("mask",))
    arrays = arguments(drawn)
    this = call_of(drawn, arrays, ["outputs", "final_h", "final_c"])
    assert xla.attributes(this) == {
        "cell": 0,
        "epsilon": 1e-5,
        "zoneout_share": 0.0,
        "cell_zoneout_share": 0.0,
        "go_backwards": 0,
        "carry_normalized_state": 0,
        # x, mask, the states, the kernels, bias.
        "arguments": 0b111_1100_0011,
        "results": 0b0111,
    }
    backward = this._replace(
        arguments=(*arrays, "residuals", "d_final_h"), results=("d_kernel",)
    )
    assert xla.attributes(backward)["arguments"] == 0b1_0100_0000_0111_1100_0011
    assert xla.attributes(backward)["results"] == 0b1000


def test_there_is_a_reason_without_the_header_of_xla(monkeypatch):
    assert xla.unsupported_reason() is None
    monkeypatch.setattr(xla, "library", lambda: object())
    assert "compiled without XLA's header" in xla.unsupported_reason()
