"""Random problems, for the library and for the oracle."""

import ctypes
from typing import Any, NamedTuple

import numpy as np
from reference.ln_gru import gru
from reference.ln_lstm import lstm
from reference.ln_simple_rnn import simple_rnn

from keras_ln_kernels import CELLS, call


class Drawn(NamedTuple):
    """Arguments in float64, and cotangents of all results."""

    cell: str
    x: Any
    states: tuple[Any, ...]  # or None each, for zeros
    weights: dict[str, Any]
    options: dict[str, Any]
    d_outputs: Any
    d_states: tuple[Any, ...]


def draw(cell, sizes, vectors=None, seed=0, masks=(), **options):
    """A problem of `sizes` (B, T, D, U).

    `vectors` are the names of those that there are, None for all that may be
    together; `masks` any
    of "mask", "input_mask", "recurrent_mask", "zoneout", "cell_zoneout",
    "starts", and "resets", the states there, which are otherwise zeros.
    """
    rng = np.random.default_rng(seed)
    batch, steps, features, units = sizes
    gates, known = CELLS[cell].gates, CELLS[cell].vectors
    assert vectors is None or set(vectors) <= {*call.ARGUMENTS}

    def normal(*shape, scale=1.0, mean=0.0):
        return mean + scale * rng.normal(size=shape)

    width = gates * units
    weights = {
        "kernel": normal(features, width, scale=features**-0.5),
        "recurrent_kernel": normal(units, width, scale=units**-0.5),
    }
    for name in known:
        mean = 1.0 if name.endswith("gamma") else 0.0
        length = units if name.startswith("state") else width
        vector = normal(length, scale=0.3, mean=mean)
        if name in (vectors or ()) or (vectors is None and "sum" not in name):
            weights[name] = vector
    lengths = dict(zip("BTDU", sizes, strict=True))
    for name in masks:
        if name == "resets":
            for state in CELLS[cell].states:
                options[f"reset_{state}"] = normal(batch, units, scale=0.5)
            continue
        drawn = rng.random([lengths[c] for c in call.ARGUMENTS[name]])
        if name in ("input_mask", "recurrent_mask"):
            options[name] = (drawn < 0.7) / 0.7
        else:
            options[name] = drawn < (0.4 if "zoneout" in name else 0.6)
    states = CELLS[cell].states
    return Drawn(
        cell,
        normal(batch, steps, features),
        tuple(normal(batch, units, scale=0.5) for _ in states),
        weights,
        options,
        normal(batch, steps, units),
        tuple(normal(batch, units) for _ in states),
    )


def cast(value, dtype):
    """Floating-point arrays of a structure in `dtype`."""
    if isinstance(value, dict):
        return {name: cast(item, dtype) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(cast(item, dtype) for item in value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.ascontiguousarray(value, dtype)
    return value


def arguments(drawn, dtype="float64"):
    """The arrays of a problem by the library's names, in its order."""
    states = zip(CELLS[drawn.cell].states, drawn.states, strict=True)
    arrays = {"x": drawn.x} | drawn.options | drawn.weights
    arrays |= {f"initial_{name}": state for name, state in states}
    return {
        name: cast(arrays[name], dtype)
        for name in call.ARGUMENTS
        if isinstance(arrays.get(name), np.ndarray)
    }


def call_of(drawn, arrays, results, dtype="float64"):
    """The call that takes and gives these."""
    told = {"epsilon": 1e-5}
    for name, value in drawn.options.items():
        if not isinstance(value, np.ndarray):
            told[f"{name}_share" if name.endswith("zoneout") else name] = value
    return call.Call(
        drawn.cell, dtype, tuple(arrays), tuple(results), call.options(**told)
    )


def new(shape, dtype):
    """An array that is full of NaN."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(count, 0xFF, "u1").view(dtype).reshape(shape)


def run(
    drawn, arrays, results, dtype="float64", threads=1, make=new, openmp=None
):
    """What a call makes of arrays, by name; `make` gets shapes and dtypes."""
    this = call_of(drawn, arrays, results, dtype)
    sizes = this.sizes({name: a.shape for name, a in arrays.items()})
    for name, array in arrays.items():
        assert array.shape == this.shape(name, sizes), name
        assert array.flags.c_contiguous
    made = {
        name: make(
            this.shape(name, sizes), "u1" if name == "residuals" else dtype
        )
        for name in results
    }
    places = {name: a.ctypes.data for name, a in (arrays | made).items()}
    call.run(this, places, sizes, threads, openmp)
    return made


def problem(this, sizes, threads=1):
    """The library's struct for a call on arrays that are nowhere."""
    there = dict.fromkeys((*this.arguments, *this.results), 64)
    return call._problem(this, call.Sizes(*sizes), there, there, threads)


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


def use_threads_of(monkeypatch, parallel_for, context=None):
    """Makes calls run `parallel_for(context, count, task, task_context)`."""
    void = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(None, void, ctypes.c_int64, TASK, void)
    function, problem_of = kind(parallel_for), call._problem

    def problem(*args):
        made = problem_of(*args)
        made.parallel_for = ctypes.cast(function, void).value
        made.parallel_context = context
        return made

    monkeypatch.setattr(call, "_problem", problem)


def final_names(drawn):
    return [f"final_{state}" for state in CELLS[drawn.cell].states]


def forward(drawn, dtype="float64", *, training=False, **more):
    """The results of the library, with the residuals in training."""
    results = ["outputs", *final_names(drawn), *["residuals"] * training]
    return run(drawn, arguments(drawn, dtype), results, dtype, **more)


def backward(drawn, residuals, dtype="float64", *, wanted=None, **more):
    """Gradients by the library; of all arguments where none are `wanted`."""
    arrays = arguments(drawn, dtype)
    if wanted is None:
        wanted = [n for n in call.GRADIENTS if n.removeprefix("d_") in arrays]
    arrays["residuals"] = residuals
    finals = zip(final_names(drawn), drawn.d_states, strict=True)
    cotangents = {f"d_{name}": d for name, d in finals}
    cotangents["d_outputs"] = drawn.d_outputs
    arrays |= {
        name: cast(d, dtype) for name, d in cotangents.items() if d is not None
    }
    return run(drawn, arrays, wanted, dtype, **more)


def gradients(drawn, dtype="float64", **more):
    """Results and gradients by the library, by name."""
    made = forward(drawn, dtype, training=True, **more)
    return made | backward(drawn, made.pop("residuals"), dtype, **more)


def oracle(drawn, dtype):
    """Outputs (B, T, U) in the order of visits, and the final states.

    By the NumPy oracle of keras_ln's tests, in float64; `dtype` is that of the
    rows that have no variance up to rounding.
    """
    weights, states = dict(drawn.weights), drawn.states
    weights.setdefault("kernel", np.eye(drawn.x.shape[-1]))
    gammas = [name for name in weights if name.endswith("gamma")]
    for name in gammas:
        beta = name.replace("gamma", "beta")
        weights.setdefault(beta, np.zeros_like(weights[name]))
    options = dict(drawn.options)
    options["roundoff"] = np.finfo(dtype).eps / 2
    for name, theirs in (
        ("input_mask", "dropout_mask"),
        ("recurrent_mask", "recurrent_dropout_mask"),
    ):
        options[theirs] = options.pop(name, None)
    carry = options.pop("carry_normalized_state", False)
    by_gate = options.pop("sum_by_gate", False)
    names = CELLS[drawn.cell].states
    after = [options.pop(f"reset_{name}", 0.0) for name in names]
    if (starts := options.pop("starts", None)) is not None:
        if options.get("go_backwards"):
            # The oracle's mark the first step in time.
            first, starts = starts[:, -1:], np.roll(starts, 1, axis=1)
            states = [
                np.where(first, *s) for s in zip(after, states, strict=True)
            ]
        options |= {"reset": starts, "reset_state": after}
    if drawn.cell == "simple_rnn":
        names = {"kernel_gamma": "gamma", "kernel_beta": "beta"}
        weights = {names.get(name, name): w for name, w in weights.items()}
        return simple_rnn(weights, drawn.x, states, **options)
    options["normalize"] = [name.removesuffix("_gamma") for name in gammas]
    options["groups"] = "gate" if by_gate else "paper"
    if drawn.cell == "gru":
        return gru(weights, drawn.x, states, **options)
    options["carry_normalized_state"] = carry
    return lstm(weights, drawn.x, states, **options)


def check_values(drawn, found, tolerance, dtype="float64"):
    """Compares results with the oracle's."""
    outputs, finals = oracle(drawn, dtype)
    expected = dict(zip(final_names(drawn), finals, strict=True))
    for name, array in ({"outputs": outputs} | expected).items():
        close(name, found[name], array, tolerance)


def check_gradients(drawn, found, tolerance, dtype="float64"):
    """Compares gradients with the oracle's, along random directions."""
    states = [f"d_initial_{state}" for state in CELLS[drawn.cell].states]
    arguments = {"d_x": drawn.x, **dict(zip(states, drawn.states, strict=True))}
    arguments |= {f"d_{name}": w for name, w in drawn.weights.items()}
    resets = [name for name in drawn.options if name.startswith("reset_")]
    arguments |= {f"d_{name}": drawn.options[name] for name in resets}

    def loss(moved):
        other = drawn._replace(
            x=moved["d_x"],
            states=[moved[name] for name in states],
            weights={name: moved[f"d_{name}"] for name in drawn.weights},
            options=drawn.options | {n: moved[f"d_{n}"] for n in resets},
        )
        outputs, finals = oracle(other, dtype)
        total = (outputs * drawn.d_outputs).sum()
        for final, cotangent in zip(finals, drawn.d_states, strict=True):
            total = total + (final * cotangent).sum()
        return total

    rng = np.random.default_rng(1)
    for name, argument in arguments.items():
        gradient = np.asarray(found[name], "float64")
        assert gradient.shape == argument.shape
        for _ in range(2):
            direction = rng.normal(size=argument.shape)
            step = 1e-30j * direction
            expected = loss(arguments | {name: argument + step}).imag / 1e-30
            # The cotangents are of size one. A gradient may be much smaller,
            # where terms cancel: few features, or few steps that count.
            size = max(1.0, np.linalg.norm(gradient))
            error = abs((gradient * direction).sum() - expected) / size
            assert error < tolerance, f"{name}: {error:.1e}"


def close(name, found, expected, tolerance):
    """Compares relative to the largest element."""
    size = np.abs(expected).max() or 1.0
    error = np.abs(np.asarray(found, "float64") - expected).max() / size
    assert error < tolerance, f"{name}: {error:.1e}"
