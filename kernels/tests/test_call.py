"""Calls by the names of their arrays, as bindings to frameworks make them."""

import numpy as np
import pytest
from problems import draw, sequence

from keras_ln_kernels import CELLS, call, xla

ALL = ("mask", "input_mask", "recurrent_mask")


def arrays_of(drawn):
    """The arrays of a problem by the library's names, in its order."""
    cell = CELLS[drawn.cell]
    arrays = {"x": drawn.x}
    arrays |= {n: drawn.options[n] for n in ALL if n in drawn.options}
    for state, array in zip(cell.states, drawn.states, strict=True):
        arrays[f"initial_{state}"] = array
    arrays |= {cell.name_in_c(n): w for n, w in drawn.weights.items()}
    return {name: arrays[name] for name in call.ARGUMENTS if name in arrays}


def call_of(drawn, arrays, results, dtype="float64"):
    return call.Call(
        drawn.cell,
        dtype,
        1e-5,
        drawn.options.get("go_backwards", False),
        drawn.options.get("carry_normalized_state", False),
        tuple(arrays),
        tuple(results),
    )


def run(drawn, arrays, results):
    this = call_of(drawn, arrays, results)
    sizes = this.sizes({name: a.shape for name, a in arrays.items()})
    made = {
        name: np.empty(
            this.shape(name, sizes),
            np.uint8 if name == "residuals" else np.float64,
        )
        for name in results
    }
    for name, array in arrays.items():
        # Residuals may have more bytes than needed, and nothing else.
        if name != "residuals":
            assert array.shape == this.shape(name, sizes)
    places = {name: a.ctypes.data for name, a in (arrays | made).items()}
    call.run(this, places, sizes, threads=2)
    return made


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("go_backwards", [False, True])
def test_a_call_is_what_sequence_runs(cell, go_backwards):
    options = {"go_backwards": go_backwards}
    if cell == "lstm":
        options["carry_normalized_state"] = True
    drawn = draw(cell, (5, 4, 3, 7), masks=ALL, **options)
    problem = sequence(drawn)
    expected = problem.forward(training=True)
    arrays = arrays_of(drawn)
    states = CELLS[cell].states
    finals = [f"final_{state}" for state in states]
    made = run(drawn, arrays, ["outputs", *finals, "residuals"])
    np.testing.assert_array_equal(made["outputs"], expected.outputs)
    for name, final in zip(finals, expected.final_states, strict=True):
        np.testing.assert_array_equal(made[name], final)

    gradients = problem.backward(
        expected.residuals,
        d_outputs=drawn.d_outputs,
        d_final_states=drawn.d_states,
    )
    wanted = [f"d_{n}" for n in arrays if f"d_{n}" in call.GRADIENTS]
    arrays["residuals"] = made["residuals"]
    arrays["d_outputs"] = drawn.d_outputs
    for state, array in zip(states, drawn.d_states, strict=True):
        arrays[f"d_final_{state}"] = array
    found = run(drawn, arrays, wanted)
    np.testing.assert_array_equal(found["d_x"], gradients.x)
    for name, array in gradients.weights.items():
        key = f"d_{CELLS[cell].name_in_c(name)}"
        np.testing.assert_array_equal(found[key], array)


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
        this = call_of(drawn, arrays_of(drawn), ["residuals"], dtype)
        problem = sequence(draw(cell, sizes, vectors), dtype)
        needed = problem.residual_bytes
        assert needed <= this.residual_bytes(sizes) < needed + 128


def test_small_problems_take_few_threads():
    """By the multiplications of a thread, 2^20 or more."""
    drawn = draw("gru", (1, 1, 1, 1), ())
    this = call_of(drawn, arrays_of(drawn), ["final_h"])

    def useful(sizes, threads):
        problem = call._problem(this, call.Sizes(*sizes), threads)
        for name in ("x", "kernel", "recurrent_kernel"):
            setattr(problem, name, 64)
        return call.library().kln_useful_threads(problem)

    assert useful((4, 10, 16, 16), 8) == 1
    # 3 * 256 * 512 * 256 is 96 times 2^20.
    assert useful((32, 8, 256, 256), 8) == 8
    assert useful((32, 8, 256, 256), 100) == 96
    assert useful((0, 8, 256, 256), 8) == 1


def test_a_call_that_the_library_refuses():
    drawn = draw("gru", (2, 3, 4, 5), ("bias",))
    arrays = arrays_of(drawn) | {"kernel_beta": np.ones(15)}
    message = "kernel_beta: there is no kernel_gamma."
    with pytest.raises(ValueError, match=message):
        run(drawn, arrays, ["final_h"])
    this = call_of(drawn, arrays, ["final_h", "residuals"])
    with pytest.raises(ValueError, match="the library refuses"):
        this.residual_bytes(call.Sizes(2, 3, 4, 5))


def test_bits_of_a_custom_call_follow_the_order_of_the_structs():
    drawn = draw("lstm", (2, 3, 4, 5), ("bias",), masks=("mask",))
    arrays = arrays_of(drawn)
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
