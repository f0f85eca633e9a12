"""The Jacobian primitive on the backend that Keras runs."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy

from keras_ln import backend

pytestmark = pytest.mark.every_backend
BACKEND = keras.backend.backend()


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
