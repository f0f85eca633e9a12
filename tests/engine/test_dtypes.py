"""One wide dtype per call, whatever dtypes the arguments have."""

import contextlib

import keras
import numpy as np
import pytest
from backend_gradients import gradients
from descriptors import SEQUENCE_LAYERS, B, D, T, U

from keras_ln import ops

# Of sequences, kernels, vectors (moving statistics too) and states.
MIXED = {
    "vectors": ("float32", "float32", "float64", "float32"),
    "states": ("float32", "float32", "float32", "float64"),
    "kernels": ("float32", "float64", "float32", "float32"),
    "sequences": ("float64", "float32", "float32", "float64"),
    "three": ("float16", "float32", "float64", "float16"),
    "half": ("float16", "float16", "float16", "float16"),
    "bfloat16": ("bfloat16", "bfloat16", "bfloat16", "bfloat16"),
    "wide states": ("bfloat16", "bfloat16", "bfloat16", "float32"),
}
# A step rounds a few times to the narrowest of the dtypes; the wide one
# rounds a hundred times, and norms of small numbers multiply that.
TOLERANCES = {
    "float64": 1e-12,
    "float32": 1e-5,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}
BITS = list(TOLERANCES)


def few_bits(rng, shape):
    """Numbers that no dtype rounds."""
    return np.round(rng.normal(size=shape) * 16) / 16


def arguments_of(row):
    """Float64 arrays: sequences, states and weights by name."""
    rng = np.random.default_rng(4)
    weights = {
        name: few_bits(rng, shape)
        for name, shape in row.weights.items()
        if not name.endswith("variance")
    }
    for name, shape in row.weights.items():
        if name.endswith("variance"):
            weights[name] = 0.5 + abs(few_bits(rng, shape))
    states = [few_bits(rng, (B, U)) for _ in range(row.state_count)]
    return few_bits(rng, (B, T, D)), states, weights


def tensors_of(row, dtypes):
    """The arguments as tensors of these dtypes."""
    sequences, states, weights = arguments_of(row)
    of_sequences, of_kernels, of_vectors, of_states = dtypes

    def tensor(value, dtype):
        return keras.ops.cast(keras.ops.convert_to_tensor(value), dtype)

    return {
        "sequences": tensor(sequences, of_sequences),
        "states": [tensor(state, of_states) for state in states],
        "weights": {
            name: tensor(w, of_kernels if "kernel" in name[-6:] else of_vectors)
            for name, w in weights.items()
        },
    }


def call(row, sequences, states, weights):
    """Last output, outputs and final states in a list."""
    options = {"learn": False} if row.batch_statistics else {}
    found = row.function(sequences, states, weights, **options)
    last, outputs, final, *_ = found
    return [last, outputs, *final]


def right(row):
    sequences, states, weights = arguments_of(row)
    options = {"training": False} if row.batch_statistics else {}
    y, final, *_ = row.oracle(weights, sequences, states, **options)
    return [y[:, -1], y, *final]


def dtype_of(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def near(found, expected, dtype):
    found = keras.ops.convert_to_numpy(keras.ops.cast(found, "float64"))
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def narrowest(*dtypes):
    return max(dtypes, key=BITS.index)


def check_values(row, dtypes):
    found = call(row, **tensors_of(row, dtypes))
    of_sequences, _, _, of_states = dtypes
    assert [dtype_of(x) for x in found] == (
        [of_sequences] * 2 + [of_states] * row.state_count
    )
    for value, expected in zip(found, right(row), strict=True):
        near(value, expected, narrowest(of_sequences, of_states))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("mix", MIXED)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_values(row, mix, plain):
    with ops.portable() if plain else contextlib.nullcontext():
        check_values(row, MIXED[mix])


@pytest.mark.parametrize("mix", ["vectors", "sequences", "three", "bfloat16"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_gradients(row, mix):
    """In the dtypes of the arguments, and those of an all wide call."""
    rng = np.random.default_rng(7)
    cotangent = keras.ops.convert_to_tensor(rng.normal(size=(B, T, U)))

    def results(dtypes):
        """The gradients and what they are of, in flat lists."""
        tensors = tensors_of(row, dtypes)
        weights = tensors["weights"]
        moving = {n: weights.pop(n) for n in list(weights) if "moving" in n}

        def loss(tensors):
            of_op = {**tensors, "weights": tensors["weights"] | moving}
            outputs = keras.ops.cast(call(row, **of_op)[1], "float64")
            return keras.ops.sum(outputs * cotangent)

        (found,) = gradients(loss, tensors)
        return keras.tree.flatten(found), keras.tree.flatten(tensors)

    found, tensors = results(MIXED[mix])
    wide, _ = results(("float64",) * 4)
    of_sequences, _, _, of_states = MIXED[mix]
    tolerance = 5 * TOLERANCES[narrowest(of_sequences, of_states)]
    for gradient, expected, tensor in zip(found, wide, tensors, strict=True):
        assert dtype_of(gradient) == dtype_of(tensor)
        a, b = (
            keras.ops.convert_to_numpy(keras.ops.cast(g, "float64"))
            for g in (gradient, expected)
        )
        limit = max(tolerance, TOLERANCES[dtype_of(tensor)])
        assert np.linalg.norm(a - b) <= limit * np.linalg.norm(b)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layer_normalization_of_wide_parameters(dtype, plain):
    """Its gamma and beta count as much as x."""
    rng = np.random.default_rng(2)
    x = few_bits(rng, (4, 5))
    gamma, beta = rng.normal(size=(2, 5))
    z = x - x.mean(-1, keepdims=True)
    z /= np.sqrt((z * z).mean(-1, keepdims=True) + 1e-5)
    with ops.portable() if plain else contextlib.nullcontext():
        found = ops.layer_normalization(
            keras.ops.cast(keras.ops.convert_to_tensor(x), dtype), gamma, beta
        )
    assert dtype_of(found) == dtype
    # Rounded once, at the end.
    unit = {"float32": 2.0**-24, "bfloat16": 2.0**-8}[dtype]
    found = keras.ops.convert_to_numpy(keras.ops.cast(found, "float64"))
    expected = gamma * z + beta
    assert (abs(found - expected) <= 1.001 * unit * abs(expected)).all()
