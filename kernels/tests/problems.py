"""Random problems, for the library and for the reference."""

from typing import Any, NamedTuple

import numpy as np
import reference

from keras_ln_kernels import CELLS, Sequence


class Drawn(NamedTuple):
    """Arguments in float64, and cotangents of all results."""

    cell: str
    x: Any
    states: tuple[Any, ...]
    weights: dict[str, Any]
    options: dict[str, Any]
    d_outputs: Any
    d_states: tuple[Any, ...]


def draw(cell, sizes, vectors=None, seed=0, masks=(), **options):
    """A problem of `sizes` (B, T, D, U).

    `vectors` are the names of those that there are, None for all; `masks` any
    of "mask", "input_mask", "recurrent_mask", "zoneout" and "cell_zoneout".
    """
    rng = np.random.default_rng(seed)
    batch, steps, features, units = sizes
    gates, known = CELLS[cell].gates, CELLS[cell].vectors

    def normal(*shape, scale=1.0, mean=0.0):
        return mean + scale * rng.normal(size=shape)

    width = gates * units
    weights = {
        "kernel": normal(features, width, scale=features**-0.5),
        "recurrent_kernel": normal(units, width, scale=units**-0.5),
    }
    for name, (count, _) in known.items():
        mean = 1.0 if name.endswith("gamma") else 0.0
        vector = normal(count * units, scale=0.3, mean=mean)
        if vectors is None or name in vectors:
            weights[name] = vector
    shapes = {"input_mask": features, "recurrent_mask": units}
    for name in masks:
        if name == "mask":
            options[name] = rng.random((batch, steps)) < 0.6
        elif name.endswith("zoneout"):
            options[name] = rng.random((batch, steps, units)) < 0.4
        else:
            keep = rng.random((batch, shapes[name])) < 0.7
            options[name] = keep / 0.7
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


def sequence(drawn, dtype="float64", **more):
    """The library's view of a problem."""
    arguments = cast((drawn.x, drawn.states, drawn.weights), dtype)
    options = cast(drawn.options, dtype) | more
    return Sequence(drawn.cell, *arguments, **options)


def gradients(drawn, dtype="float64", **more):
    """Results and gradients by the library, by name."""
    problem = sequence(drawn, dtype, **more)
    result = problem.forward(training=True)
    d_outputs, d_states = cast((drawn.d_outputs, drawn.d_states), dtype)
    found = problem.backward(
        result.residuals, d_outputs=d_outputs, d_final_states=d_states
    )
    return by_name(result, found)


def by_name(result, found):
    """Every array of a result and its gradients."""
    arrays = {"outputs": result.outputs, "d_x": found.x}
    for k, array in enumerate(result.final_states):
        arrays[f"final{k}"] = array
    for k, array in enumerate(found.initial_states):
        arrays[f"d_state{k}"] = array
    return arrays | {f"d_{name}": a for name, a in found.weights.items()}


def check_values(drawn, found, tolerance, dtype="float64"):
    """Compares results with the reference."""
    outputs, finals = reference.run(
        drawn.cell,
        drawn.x,
        drawn.states,
        drawn.weights,
        **drawn.options,
        dtype=dtype,
    )
    close("outputs", found["outputs"], outputs, tolerance)
    for k, final in enumerate(finals):
        close(f"final{k}", found[f"final{k}"], final, tolerance)


def check_gradients(drawn, found, tolerance, dtype="float64"):
    """Compares gradients with the reference's, along random directions."""
    arguments = {"d_x": drawn.x}
    for k, state in enumerate(drawn.states):
        arguments[f"d_state{k}"] = state
    arguments |= {f"d_{name}": w for name, w in drawn.weights.items()}

    def loss(moved):
        outputs, finals = reference.run(
            drawn.cell,
            moved["d_x"],
            [moved[f"d_state{k}"] for k in range(len(drawn.states))],
            {name: moved[f"d_{name}"] for name in drawn.weights},
            **drawn.options,
            dtype=dtype,
        )
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
            expected = reference.along(loss, arguments, {name: direction})
            # The cotangents are of size one. A gradient may be much smaller,
            # where terms cancel: few features, or few steps that count.
            size = max(1.0, np.linalg.norm(gradient))
            error = abs((gradient * direction).sum() - expected) / size
            assert error < tolerance, f"{name}: {error:.1e}"


def close(name, found, expected, tolerance):
    """Compares relative to the largest element."""
    size = np.abs(expected).max()
    error = np.abs(np.asarray(found, "float64") - expected).max() / size
    assert error < tolerance, f"{name}: {error:.1e}"
