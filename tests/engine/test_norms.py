"""Functions that normalise: values, gradients, dtypes, refusals."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from reference import gradients, norms
from refusals import NO_NUMBERS
from tolerances import FLOAT32_VALUES, FLOAT64

from keras_ln import LayerNormalization
from keras_ln.ops import generalized_linear as model
from keras_ln.ops.norms.batch_normalization import (
    batch_statistics,
    update_moving_statistics,
    update_step_statistics,
)
from keras_ln.ops.norms.layer_normalization import (
    layer_normalization,
    layer_normalization_forward,
    layer_normalization_vjp,
)

BACKEND = keras.backend.backend()

# (shape of x, axis)
CASES = [
    ((5,), -1),
    ((4, 9), -1),
    ((4, 9), 0),
    ((4, 9), (0, 1)),
    ((2, 3, 5), 1),
    ((2, 3, 5), (-1, 1)),
    ((2, 3, 5), [0, 2]),
    ((2, 3, 2, 4), (1, 2, 3)),
    ((2, 3, 2, 4), (1, 3)),
    ((6, 1), -1),
]


def arrays(shape, axis, seed=0):
    """Random x, gamma, beta and cotangent."""
    rng = np.random.default_rng(seed)
    sizes = [shape[a] for a in positive(axis, len(shape))]
    return {
        "x": 2.0 + 3.0 * rng.normal(size=shape),
        "gamma": 1.0 + 0.5 * rng.normal(size=sizes),
        "beta": rng.normal(size=sizes),
        "cotangent": rng.normal(size=shape),
    }


def positive(axis, rank):
    axes = axis if isinstance(axis, tuple | list) else [axis]
    return sorted(a % rank for a in axes)


def oracle(x, gamma, beta, axis, epsilon=1e-5):
    axes = tuple(positive(axis, x.ndim))
    sizes = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
    gamma, beta = (
        None if p is None else p.reshape(sizes) for p in (gamma, beta)
    )
    return norms.layer_norm(x, gamma, beta, epsilon, axes)


def oracle_gradients(data, axis, epsilon=1e-5):
    """Of sum(y * cotangent), by the complex step."""
    sources = {k: v for k, v in data.items() if k != "cotangent"}

    def loss(a):
        y = oracle(a["x"], a.get("gamma"), a.get("beta"), axis, epsilon)
        return (y * data["cotangent"]).sum()

    return gradients.complex_step(loss, sources)


def run(data, dtype="float64", compiled=False, unknown_sizes=False, **options):
    """Values and autodiff gradients of the op in this dtype."""
    data = {k: v.astype(dtype) for k, v in data.items()}
    layer = LayerNormalization(
        scale="gamma" in data, center="beta" in data, dtype=dtype, **options
    )
    layer.build(data["x"].shape)
    layer.set_weights([data[k] for k in ("gamma", "beta") if k in data])
    return value_and_gradients(
        layer,
        data["x"],
        [data["cotangent"]],
        compiled=compiled,
        unknown_sizes=unknown_sizes,
    )


def check(data, axis=-1, epsilon=1e-5, **modes):
    """Fail unless values and gradients are those of the oracle."""
    result = run(data, axis=axis, epsilon=epsilon, **modes)
    expected = oracle(
        data["x"], data.get("gamma"), data.get("beta"), axis, epsilon
    )
    close(result.outputs[0], expected, **FLOAT64)
    right = oracle_gradients(data, axis, epsilon)
    assert set(result.gradients) == set(right)
    close(result.gradients, right, **FLOAT64)
    found = [result.outputs[0], *result.gradients.values()]
    assert {array.dtype.name for array in found} == {"float64"}


@pytest.mark.parametrize("shape, axis", CASES)
def test_value_and_gradients_in_float64(shape, axis):
    check(arrays(shape, axis), axis)


@pytest.mark.every_backend
@pytest.mark.parametrize("unknown_sizes", [False, True])
def test_compiled_value_and_gradients(unknown_sizes):
    data = arrays((3, 4, 6), -1)
    check(data, compiled=True, unknown_sizes=unknown_sizes)


@pytest.mark.parametrize("missing", [("gamma",), ("beta",), ("gamma", "beta")])
def test_without_parameters(missing):
    data = arrays((3, 5), -1)
    check({k: v for k, v in data.items() if k not in missing})


# Values of order one, computed in float32 and rounded to 11 or 8 bits; the
# gradients of gamma and beta stay in float32.
@pytest.mark.parametrize(
    "dtype, step", [("float16", 2.0**-11), ("bfloat16", 2.0**-8)]
)
def test_half_precision_rounds_once(dtype, step):
    data = arrays((4, 33), -1)
    x, cotangent = (
        keras.ops.cast(keras.ops.convert_to_tensor(data[name]), dtype)
        for name in ("x", "cotangent")
    )
    parameters = {
        name: keras.ops.convert_to_tensor(data[name], "float32")
        for name in ("gamma", "beta")
    }
    rounded = {
        "x": to_numpy(keras.ops.cast(x, "float32")).astype("float64"),
        "cotangent": to_numpy(keras.ops.cast(cotangent, "float32")).astype(
            "float64"
        ),
        "gamma": data["gamma"],
        "beta": data["beta"],
    }
    found, residuals = layer_normalization_forward(
        {"x": x, **parameters}, axes=(1,), epsilon=1e-5
    )
    found |= layer_normalization_vjp(residuals, {"y": cotangent}, axes=(1,))
    right = oracle_gradients(rounded, -1)
    expected = {
        "y": oracle(rounded["x"], data["gamma"], data["beta"], -1),
        **right,
    }
    dtypes = [dtype, dtype, "float32", "float32"]
    for name, kind in zip(("y", "x", "gamma", "beta"), dtypes, strict=True):
        got = found[name]
        assert keras.backend.standardize_dtype(got.dtype) == kind
        tolerance = (
            FLOAT32_VALUES
            if kind == "float32"
            else {"rtol": 1.01 * step, "atol": 1e-5}
        )
        close(keras.ops.cast(got, "float32"), expected[name], name, **tolerance)


@pytest.mark.parametrize("size", [8, 1000, 4096])
def test_large_mean_costs_no_more_than_rounding_the_input(size):
    rng = np.random.default_rng(1)
    exact = 1e4 + rng.normal(size=(16, size))
    x = exact.astype("float32")
    y = to_numpy(layer_normalization(keras.ops.convert_to_tensor(x)))
    expected = norms.layer_norm(exact)
    rounded = norms.layer_norm(x.astype("float64"))
    # float32 numbers near 1e4 are 2^-10 apart, so rounding moves x by 2^-11.
    assert abs(rounded - expected).max() > 4e-4
    assert abs(y - expected).max() < 2.0**-11 * 1.05 / exact.std(-1).min()
    close(y, rounded, **FLOAT32_VALUES)


def test_gradient_at_zero_is_one_over_root_epsilon():
    data = arrays((2, 5), -1)
    data["x"] = np.zeros((2, 5))
    gradient = run(data).gradients["x"]
    g = data["gamma"] * data["cotangent"]
    expected = (g - g.mean(-1, keepdims=True)) / np.sqrt(1e-5)
    close(gradient, expected, **FLOAT64)


@pytest.mark.every_backend
def test_residuals_hold_nothing_else_of_the_size_of_x():
    data = arrays((7, 11), -1)
    given = {
        name: keras.ops.convert_to_tensor(data[name])
        for name in ("x", "gamma", "beta")
    }
    _, residuals = layer_normalization_forward(given, axes=(1,), epsilon=1e-5)
    shapes = sorted(tuple(r.shape) for r in residuals.values())
    assert shapes == [*[(7, 1)] * 3, (7, 11), (11,), (11,)]
    assert residuals["x"] is given["x"]


@pytest.mark.parametrize("name", ["gamma", "beta"])
@pytest.mark.parametrize("shape", [(4,), (1, 3), ()])
def test_wrong_parameter_shapes_are_refused(name, shape):
    with pytest.raises(ValueError, match=rf"`{name}` must have the sizes.*3"):
        layer_normalization(
            keras.ops.ones((2, 3)), **{name: keras.ops.ones(shape)}
        )


@pytest.mark.parametrize("name", ["x", "gamma", "beta"])
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_tensor_is_refused(name, value):
    given = {"x": np.ones((2, 3), "float32"), name: value}
    with pytest.raises(ValueError, match=f"`{name}` must .*Received: "):
        layer_normalization(**given)
    right = {"x": [[1.0, 2.0]], "gamma": [1.0, 3.0], "beta": (0.5, 1)}
    close(
        layer_normalization(**right),
        layer_normalization(**{n: np.float32(v) for n, v in right.items()}),
    )


@pytest.mark.parametrize(
    "options, message",
    [
        *(
            ({"axis": axis}, "`axis` (must name|is out)")
            for axis in (2, (0, 0), ())
        ),
        *(({"epsilon": e}, "`epsilon` must be a fin") for e in (-1.0, np.nan)),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        layer_normalization(keras.ops.ones((2, 3)), **options)
    for dtype in ("int32", "bool"):
        with pytest.raises(ValueError, match=f"`x` must have a floa.*{dtype}"):
            layer_normalization(keras.ops.ones((2, 3), dtype))


B, T, F = 5, 4, 3


def tensor(x, dtype=None):
    return None if x is None else keras.ops.convert_to_tensor(x, dtype)


def example(seed=0):
    return 1.0 + 2.0 * np.random.default_rng(seed).normal(size=(B, T, F))


def test_two_passes_survive_a_large_mean():
    x = (1e4 + np.random.default_rng(2).normal(size=(512, 6))).astype("float32")
    _, variance = batch_statistics(tensor(x))
    right = x.astype("float64").var(0)
    # E[x^2] - E[x]^2 in float32 would be off by 1e8 * 6e-8 = 6.
    close(variance, right, rtol=1e-4)


@pytest.mark.every_backend
@pytest.mark.parametrize("masked", [False, True])
def test_equal_elements_have_no_variance(masked):
    """XLA's sum of them, in sequence, is off by 300 roundings."""
    x = np.random.default_rng(4).normal(size=6).astype("float32")
    rows = np.tile(x, (5000, 1))
    mask = np.ones((5000, 1), bool)
    if masked:
        mask[7] = False
        rows[7] = np.nan

    def statistics(rows, mask):
        return batch_statistics(rows, mask if masked else None)

    if BACKEND == "tensorflow":
        import tensorflow as tf

        statistics = tf.function(statistics, jit_compile=True)
    mean, variance = map(to_numpy, statistics(tensor(rows), tensor(mask)))
    close(mean, x, rtol=2.0**-23)
    assert (np.sqrt(variance) <= 16 * 2.0**-24 * abs(x)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_taken_in_float32(dtype):
    x = tensor(np.full((4096, 2), 40.0), dtype)
    mean, variance = batch_statistics(x)
    for value, right in ((mean, 40.0), (variance, 0.0)):
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        np.testing.assert_array_equal(to_numpy(value), right)


def moving(seed=8, steps=T):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(steps, F))
    return mean, rng.uniform(0.5, 2.0, size=(steps, F))


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_entries_that_are_not_finite_stay_out(momentum, bad, which):
    old, batch = moving(), moving(9)
    batch[which][2, 1] = bad
    given = update_moving_statistics(
        *map(tensor, old), *map(tensor, batch), momentum
    )
    for value, before, new in zip(given, old, batch, strict=True):
        right = norms.moving_average(before, new, momentum)
        right[2, 1] = before[2, 1]
        close(value, right, **FLOAT64)


@pytest.mark.parametrize("steps", [3, T + 2])
def test_steps_that_are_not_there_stay(steps):
    old, batch = moving(), moving(9, steps)
    valid = np.arange(steps) % 2 == 0
    given = update_step_statistics(
        *map(tensor, (*old, *batch)), 0.75, tensor(valid)
    )
    for value, right, new in zip(given, old, batch, strict=True):
        for t in np.flatnonzero(valid[:T]):
            right[t] = norms.moving_average(right[t], new[t], 0.75)
        close(value, right, **FLOAT64)


N, D, H = 5, 3, 4


def right(a, kernel, normalization):
    """`(a - mu) / sigma` in NumPy; without epsilon."""
    if normalization == "weight":
        return a / np.linalg.norm(kernel, axis=0)
    if normalization is None:
        return a
    axis = {"batch": 0, "layer": 1}[normalization]
    return (a - a.mean(axis, keepdims=True)) / a.std(axis, keepdims=True)


@pytest.mark.parametrize("normalization", [None, *model.NORMALIZATIONS])
def test_without_epsilon_by_default(normalization):
    rng = np.random.default_rng(6)
    x, kernel = rng.normal(size=(N, D)), rng.normal(size=(D, H))
    gain, bias = rng.normal(size=(2, H))
    theta = np.concatenate([kernel.T, bias[:, None], gain[:, None]], axis=1)
    x, theta, w = map(keras.ops.convert_to_tensor, (x, theta, kernel))
    z = right(keras.ops.convert_to_numpy(x) @ kernel, kernel, normalization)
    found = model.normalized_summed_inputs(x, w, normalization)
    close(found, z, rtol=1e-12, atol=1e-12)
    found = model.linear_predictor(x, theta, normalization)
    y = z + bias if normalization is None else gain * z + bias
    close(found, y, rtol=1e-12, atol=1e-12)
