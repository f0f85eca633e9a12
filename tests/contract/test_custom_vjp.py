"""Gradients by hand and Jacobians of the backend."""

import contextlib

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import compiled, gradients

from keras_ln import backend

pytestmark = pytest.mark.every_backend
BACKEND = keras.backend.backend()


def tensor(rng, *shape, dtype="float64"):
    return keras.ops.convert_to_tensor(rng.normal(size=shape), dtype=dtype)


def make_op(gradient_factor=1.0):
    """y = x^2 w and z = x + w, with an integer array without a gradient."""

    def forward(arrays, keep):
        x, w = arrays["x"], arrays["w"]
        return {"y": x * x * w, "z": x + w}, {"x": x, "w": w}

    def backward(residuals, cotangents):
        x, w = residuals["x"], residuals["w"]
        y, z = cotangents["y"], cotangents["z"]
        gx = (2 * x * w * y + z) * gradient_factor
        return {"w": x * x * y + z, "x": gx}

    op = backend.custom_vjp(forward, backward)
    index = keras.ops.convert_to_tensor([1, 2], "int32")
    return lambda x, w: op({"x": x, "index": index, "w": w})


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
def test_custom_vjp_uses_the_given_gradient(mode, rng):
    op = make_op(gradient_factor=3.0)
    x, w = tensor(rng, 4), tensor(rng, 4)

    def loss(x, w):
        out = op(x, w)
        return backend.sum(out["y"]) + 2 * backend.sum(out["z"])

    def both(x, w):
        return gradients(loss, x, w)

    gx, gw = map(to_numpy, mode(both)(x, w))
    xn, wn = to_numpy(x), to_numpy(w)
    close(gx, 3 * (2 * xn * wn + 2), rtol=1e-13)
    close(gw, xn * xn + 2, rtol=1e-13)


@pytest.mark.parametrize("output", ["y", "z"])
def test_custom_vjp_takes_a_missing_cotangent_as_zero(output, rng):
    op = make_op()
    x, w = tensor(rng, 4), tensor(rng, 4)
    gx, gw = gradients(lambda x, w: backend.sum(op(x, w)[output]), x, w)
    xn, wn = to_numpy(x), to_numpy(w)
    expected = {"y": (2 * xn * wn, xn * xn), "z": (1 + 0 * xn, 1 + 0 * xn)}
    close((gx, gw), expected[output], rtol=1e-13)


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
def test_custom_vjp_second_derivative(mode, rng):
    op = make_op()
    x, w = tensor(rng, 4), tensor(rng, 4)
    c = tensor(rng, 4)

    def first(x, w):
        gx, gw = gradients(lambda x, w: backend.sum(c * op(x, w)["y"]), x, w)
        return backend.sum(gx * gx) + backend.sum(gw)

    def both(x, w):
        return gradients(first, x, w)

    gx, gw = map(to_numpy, mode(both)(x, w))
    xn, wn, cn = map(to_numpy, (x, w, c))
    # first = sum((2 c x w)^2) + sum(c x^2)
    close(gx, 8 * cn**2 * xn * wn**2 + 2 * cn * xn, rtol=1e-12)
    close(gw, 8 * cn**2 * xn**2 * wn, rtol=1e-12)


@pytest.mark.parametrize("hint", [True, False])
def test_custom_vjp_keeps_residuals_where_there_is_a_gradient(hint, rng):
    """JAX and torch know; TensorFlow does what it is told."""
    asked = []

    def forward(arrays, keep):
        asked.append(keep)
        x = arrays["x"]
        return {"y": x * x}, {"kept": 3 * x} if keep else {}

    def backward(residuals, cotangents):
        return {"x": residuals["kept"] * cotangents["y"]}

    x, no_gradient = tensor(rng, 4), contextlib.nullcontext()
    if BACKEND == "torch":
        import torch

        no_gradient = torch.no_grad()
    with no_gradient:
        y = backend.custom_vjp(forward, backward)({"x": x}, keep=hint)["y"]
    np.testing.assert_allclose(to_numpy(y), to_numpy(x) ** 2)
    assert asked == [hint and BACKEND == "tensorflow"]
    asked.clear()
    op = backend.custom_vjp(forward, backward)
    (found,) = gradients(lambda x: backend.sum(op({"x": x}, keep=hint)["y"]), x)
    np.testing.assert_allclose(to_numpy(found), 3 * to_numpy(x))
    assert (
        asked
        == {
            "tensorflow": [True] if hint else [False, True],
            # Of what JAX has traced it takes the gradient.
            "jax": [False, True],
            # For the second derivative, which `gradients` makes possible.
            "torch": [True, True],
        }[BACKEND]
    )


def product_op():
    """The product of the rows of x, by a loop that keeps something."""

    def forward(arrays, keep):
        carry, made = backend.scan(
            lambda c, row: ({"c": c["c"] * row["x"]}, {"before": c["c"]}),
            {"c": keras.ops.ones_like(arrays["x"][0])},
            arrays,
        )
        return {"y": carry["c"]}, arrays | made

    def backward(residuals, cotangents):
        def step(carry, row):
            after = carry["c"]
            return {"c": after * row["x"]}, {"x": after * row["before"]}

        start = {"c": cotangents["y"]}
        return backend.scan(step, start, residuals, reverse=True)[1]

    op = backend.custom_vjp(forward, backward)
    return lambda x: op({"x": x})["y"]


if BACKEND == "tensorflow":
    import tensorflow as tf

    @pytest.mark.parametrize("jit_compile", [None, True])
    def test_vectorized_map_keeps_the_given_gradient(jit_compile, rng):
        """Of what differs between the iterations, and of what does not."""
        op = make_op(gradient_factor=3.0)
        x, w, c = tensor(rng, 3, 2), tensor(rng, 2), tensor(rng, 3, 2)

        @tf.function(jit_compile=jit_compile)
        def found(x, w):
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                y = tf.vectorized_map(
                    lambda row: tf.reduce_sum(row[1] * op(row[0], w)["y"]),
                    (x, c),
                )
            return tape.gradient(y, [x, w])

        gx, gw = found(x, w)
        close(gx, 3 * 2 * x * w * c, rtol=1e-12)
        close(gw, tf.reduce_sum(x * x * c, 0), rtol=1e-12)

    @pytest.mark.promise("on TensorFlow graph rewrites")
    def test_a_copy_of_a_graph_keeps_the_given_gradient(rng):
        """Though not the tensors that the original's function keeps."""
        op = make_op(gradient_factor=3.0)
        x, w = tensor(rng, 2), tensor(rng, 2)
        traced = tf.function(lambda x, w: op(x, w)["y"]).get_concrete_function(
            tf.TensorSpec([2], tf.float64), tf.TensorSpec([2], tf.float64)
        )
        names = [tensor.name for tensor in traced.inputs]
        captured = traced.captured_inputs

        @tf.function
        def copy(x, w):
            (y,) = tf.graph_util.import_graph_def(
                traced.graph.as_graph_def(),
                dict(
                    zip(names, (x, w, *map(tf.identity, captured)), strict=True)
                ),
                [traced.outputs[0].name],
            )
            return tf.gradients(tf.ensure_shape(y, [2]), [x, w])

        gx, gw = copy(x, w)
        close(gx, 3 * 2 * x * w, rtol=1e-12)
        close(gw, x * x, rtol=1e-12)

    @pytest.mark.parametrize("jit_compile", [None, True])
    def test_gradient_of_a_jacobian_through_a_loop(jit_compile, rng):
        """TensorFlow does not vectorise the gradient of a loop."""
        op, x = product_op(), tensor(rng, 3, 2)

        def gradient(function, **pfor):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape(persistent=True) as tape:
                    tape.watch(x)
                    y = function(x)
                loss = tf.reduce_sum(tape.jacobian(y, x, **pfor) ** 3)
            return outer.gradient(loss, x)

        found = tf.function(lambda: gradient(op), jit_compile=jit_compile)()
        right = gradient(
            lambda x: tf.reduce_prod(x, 0), experimental_use_pfor=False
        )
        assert abs(right.numpy()).max() > 1e-3
        close(found, right, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_output_in_every_input(dtype, rng):
    x = rng.normal(size=(3, 2)).astype(dtype)
    a = rng.normal(size=(2, 4)).astype(dtype)

    def function(x):
        y = backend.matmul(x, keras.ops.convert_to_tensor(a))
        return backend.tanh(y)  # (3, 4)

    got = to_numpy(backend.jacobian(function, keras.ops.convert_to_tensor(x)))
    slope = 1 - np.tanh(x @ a) ** 2
    expected = np.einsum("nh,dh,nm->nhmd", slope, a, np.eye(3))
    assert got.dtype == dtype and got.shape == (3, 4, 3, 2)
    tolerance = {"float32": 1e-5, "float64": 1e-13}[dtype]
    close(got, expected, atol=tolerance)


def test_a_scalar_has_the_gradient(rng):
    x = rng.normal(size=(2, 3))
    got = backend.jacobian(
        lambda x: backend.sum(x * x * x), keras.ops.convert_to_tensor(x)
    )
    close(got, 3 * x**2, rtol=1e-13)


def test_outputs_without_the_input_have_zeros(rng):
    x = keras.ops.convert_to_tensor(rng.normal(size=(2,)))

    def function(x):
        constant = keras.ops.ones((1,), dtype="float64")
        return keras.ops.concatenate([x[:1] * x[1:], constant])

    first, second = to_numpy(x)
    np.testing.assert_allclose(
        to_numpy(backend.jacobian(function, x)), [[second, first], [0, 0]]
    )


def test_through_scan_and_a_hand_written_gradient(rng):
    """The given gradient is used: three times the true one."""
    op = backend.custom_vjp(
        lambda arrays, keep: ({"y": arrays["x"] ** 2}, arrays),
        lambda arrays, cotangents: {"x": 6 * arrays["x"] * cotangents["y"]},
    )
    x = rng.normal(size=(4, 2))

    def function(x):  # (4, 2) -> (2,)
        return backend.scan(
            lambda carry, row: ({"total": carry["total"] + op(row)["y"]}, {}),
            {"total": keras.ops.zeros((2,), dtype="float64")},
            {"x": x},
        )[0]["total"]

    got = backend.jacobian(function, keras.ops.convert_to_tensor(x))
    expected = np.einsum("ij,ti->itj", np.eye(2), 6 * x)
    close(got, expected, rtol=1e-13)
