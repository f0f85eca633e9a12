"""What every backend module promises, tested on the one that Keras runs."""

import contextlib

import keras
import numpy as np
import pytest
from arrays import close, to_numpy

from keras_ln import backend

pytestmark = pytest.mark.every_backend
BACKEND = keras.backend.backend()


def tensor(rng, *shape, dtype="float64"):
    return keras.ops.convert_to_tensor(rng.normal(size=shape), dtype=dtype)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def compiled(function):
    """``function`` as the framework's graph mode would run it."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, autograph=False)
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    return function


def gradients(function, *xs):
    """Gradients of a scalar function by the framework's autodiff."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = function(*xs)
        return tape.gradient(y, xs)
    if BACKEND == "jax":
        import jax

        return jax.grad(function, argnums=tuple(range(len(xs))))(*xs)
    import torch

    xs = [x if x.requires_grad else x.detach().requires_grad_() for x in xs]
    return torch.autograd.grad(function(*xs), xs, create_graph=True)


UNARY = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "log": lambda x: np.log(np.abs(x)),
    "sqrt": lambda x: np.sqrt(np.abs(x)),
}


@pytest.mark.parametrize("name", UNARY)
def test_elementwise_functions_keep_float64(name, rng):
    x = rng.normal(size=(5, 7))
    if name in ("log", "sqrt"):
        x = np.abs(x)
    y = getattr(backend, name)(keras.ops.convert_to_tensor(x, "float64"))
    assert keras.backend.standardize_dtype(y.dtype) == "float64"
    close(y, UNARY[name](x), rtol=1e-14)


@pytest.mark.parametrize("name", ["mean", "sum"])
@pytest.mark.parametrize(
    "axis, keepdims", [(None, False), (0, False), (-1, True), ((0, 2), True)]
)
def test_reductions_keep_float64(name, axis, keepdims, rng):
    x = rng.normal(size=(3, 4, 5))
    y = getattr(backend, name)(
        keras.ops.convert_to_tensor(x, "float64"), axis, keepdims
    )
    assert keras.backend.standardize_dtype(y.dtype) == "float64"
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    close(y, expected, rtol=1e-13)


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
@pytest.mark.parametrize("axes", [(), (0,), (2,), (1, 2), (0, 2), (0, 1, 2)])
def test_fused_sum_with_weights(axes, mode, rng):
    x = rng.normal(size=(19, 4, 5))
    sizes = [n if a in axes else 1 for a, n in enumerate(x.shape)]
    weights = rng.normal(size=sizes)
    function = mode(lambda x, w: backend.fused_sum(x, axes, weights=w))
    y = function(*map(keras.ops.convert_to_tensor, (x, weights)))
    expected = (x * weights).sum(axes)
    assert to_numpy(y).dtype == "float64" and y.shape == expected.shape
    close(y, expected, rtol=1e-11)


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("shape", [(19, 4, 5), (2, 3, 4), (8, 1, 9)])
@pytest.mark.parametrize(
    "axes", [(), (0,), (2,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]
)
def test_fused_sum(axes, shape, keepdims, mode, rng):
    x = rng.normal(size=shape)
    function = mode(lambda x: backend.fused_sum(x * x, axes, keepdims))
    y = function(keras.ops.convert_to_tensor(x))
    expected = (x * x).sum(axes, keepdims=keepdims)
    assert to_numpy(y).dtype == "float64" and y.shape == expected.shape
    close(y, expected, rtol=1e-13)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3)])
def test_matmul_keeps_float64(shape, rng):
    a, b = rng.normal(size=shape), rng.normal(size=(3, 5))
    y = backend.matmul(*(keras.ops.convert_to_tensor(v) for v in (a, b)))
    assert keras.backend.standardize_dtype(y.dtype) == "float64"
    close(y, a @ b, rtol=1e-13)


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_python_loop(mode, reverse, rng):
    xs, bias = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))

    def step(carry, x):
        total, product, absent = carry
        assert absent is None and x["absent"] is None
        total = total + x["x"] * product
        product = product * 0.5 + x["bias"]
        y = {"total": total, "sum": x["x"] + x["bias"], "absent": None}
        return (total, product, None), y

    def run(xs, bias):
        init = (keras.ops.zeros_like(xs[0]), keras.ops.ones_like(xs[0]), None)
        rows = {"x": xs, "bias": bias, "absent": None}
        return backend.scan(step, init, rows, reverse=reverse)

    (total, product, absent), ys = mode(run)(
        *(keras.ops.convert_to_tensor(v) for v in (xs, bias))
    )

    assert absent is None and ys["absent"] is None
    t, p, expected = np.zeros(4), np.ones(4), np.zeros((6, 4))
    for i in reversed(range(6)) if reverse else range(6):
        t, p = t + xs[i] * p, p * 0.5 + bias[i]
        expected[i] = t
    close(total, t, rtol=1e-13)
    close(product, p, rtol=1e-13)
    close(ys["total"], expected, rtol=1e-13)
    close(ys["sum"], xs + bias, rtol=1e-13)


def test_scan_is_differentiable(rng):
    xs = rng.normal(size=(5, 3))

    def loss(x):
        carry, ys = backend.scan(
            lambda c, x: (c * x, c + x), keras.ops.ones_like(x[0]), x
        )
        return backend.sum(carry) + backend.sum(ys * ys)

    def loss_numpy(x):
        carry, total = np.ones(3), 0.0
        for row in x:
            total += ((carry + row) ** 2).sum()
            carry = carry * row
        return carry.sum() + total

    def value(x):
        return to_numpy(compiled(loss)(keras.ops.convert_to_tensor(x)))

    (gradient,) = gradients(loss, keras.ops.convert_to_tensor(xs))
    expected = finite_differences(loss_numpy, xs)
    close(value(xs), loss_numpy(xs), rtol=1e-13)
    close(to_numpy_detached(gradient), expected, rtol=1e-7)


def to_numpy_detached(x):
    return to_numpy(x.detach() if hasattr(x, "detach") else x)


def finite_differences(function, x, h=1e-5):
    gradient = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        d = np.zeros_like(x)
        d[i] = h
        gradient[i] = (function(x + d) - function(x - d)) / (2 * h)
    return gradient


if BACKEND == "tensorflow":

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("jit_compile", [False, True])
    def test_scan_takes_an_unknown_length(reverse, jit_compile, rng):
        import tensorflow as tf

        @tf.function(
            jit_compile=jit_compile,
            input_signature=[tf.TensorSpec([None, None], "float64")],
        )
        def cumulative(x):
            init = tf.zeros_like(x[0])
            return backend.scan(
                lambda c, r: (c + r, c + r), init, x, reverse=reverse
            )[1]

        for length in (1, 4):
            x = rng.normal(size=(length, 3))
            expected = x[::-1].cumsum(0)[::-1] if reverse else x.cumsum(0)
            close(cumulative(x), expected, rtol=1e-12)


if BACKEND == "tensorflow":

    @pytest.mark.parametrize("jit_compile", [False, True])
    @pytest.mark.parametrize("axes", [(0,), (2,), (1,), (0, 1), (1, 2)])
    def test_fused_sum_of_unknown_sizes(axes, jit_compile, rng):
        import tensorflow as tf

        @tf.function(
            jit_compile=jit_compile,
            input_signature=[tf.TensorSpec([None, None, None], "float64")],
        )
        def total(x):
            return backend.fused_sum(x, axes)

        for shape in ((19, 4, 5), (3, 1, 2), (0, 2, 3)):
            x = rng.normal(size=shape)
            close(total(x), x.sum(axes), rtol=1e-12)

    def test_residuals_that_are_arguments_are_not_copied():
        import tensorflow as tf

        def forward(x, w, keep):
            return x * w, (x, w, x + w)

        seen = []

        def backward(residuals, cotangent):
            x, w, total = residuals
            seen.append((x, w, total))
            return cotangent * w, cotangent * x * 0 + total

        op = backend.custom_vjp(forward, backward)
        x, w = tf.constant([2.0, 3.0]), tf.constant([5.0, 7.0])
        graph = tf.function(lambda x, w: gradients(op, x, w))
        gx, gw = graph(x, w)
        np.testing.assert_allclose(gx, w)
        np.testing.assert_allclose(gw, x + w)
        assert len(seen) == 1
        library = graph.get_concrete_function(x, w).graph.as_graph_def().library
        outputs = [
            [output.name for output in function.signature.output_arg]
            for function in library.function
            if function.attr["_XlaMustCompile"].b
        ]
        # The forward returns x * w and x + w, the backward two gradients.
        assert sorted(map(len, outputs)) == [2, 2]


def make_op(gradient_factor=1.0):
    """y = x^2 w and z = x + w, with an absent and an integer argument."""

    def forward(x, weights, index, keep):
        w = weights["w"]
        return {"y": x * x * w, "z": x + w}, (x, w)

    def backward(residuals, cotangents):
        x, w = residuals
        y, z = cotangents["y"], cotangents["z"]
        gx = (2 * x * w * y + z) * gradient_factor
        return gx, {"w": x * x * y + z, "absent": None}, None

    op = backend.custom_vjp(forward, backward)
    index = keras.ops.convert_to_tensor([1, 2], "int32")
    return lambda x, w: op(x, {"w": w, "absent": None}, index)


@pytest.mark.parametrize("mode", [lambda f: f, compiled])
def test_custom_vjp_uses_the_given_gradient(mode, rng):
    op = make_op(gradient_factor=3.0)
    x, w = tensor(rng, 4), tensor(rng, 4)

    def loss(x, w):
        out = op(x, w)
        return backend.sum(out["y"]) + 2 * backend.sum(out["z"])

    def both(x, w):
        return gradients(loss, x, w)

    gx, gw = map(to_numpy_detached, mode(both)(x, w))
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
    for got, want in zip((gx, gw), expected[output], strict=True):
        close(to_numpy_detached(got), want, rtol=1e-13)


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

    gx, gw = map(to_numpy_detached, mode(both)(x, w))
    xn, wn, cn = map(to_numpy, (x, w, c))
    # first = sum((2 c x w)^2) + sum(c x^2)
    close(gx, 8 * cn**2 * xn * wn**2 + 2 * cn * xn, rtol=1e-12)
    close(gw, 8 * cn**2 * xn**2 * wn, rtol=1e-12)


@pytest.mark.parametrize("hint", [True, False])
def test_custom_vjp_keeps_residuals_where_there_is_a_gradient(hint, rng):
    """JAX and torch know; TensorFlow does what it is told."""
    asked = []

    def forward(x, keep):
        asked.append(keep)
        return x * x, (3 * x if keep else None)

    def backward(residual, cotangent):
        return (residual * cotangent,)

    x, no_gradient = tensor(rng, 4), contextlib.nullcontext()
    if BACKEND == "torch":
        import torch

        no_gradient = torch.no_grad()
    with no_gradient:
        y = backend.custom_vjp(forward, backward)(x, keep=hint)
    np.testing.assert_allclose(to_numpy(y), to_numpy(x) ** 2)
    assert asked == [hint and BACKEND == "tensorflow"]
    asked.clear()
    op = backend.custom_vjp(forward, backward)
    (found,) = gradients(lambda x: backend.sum(op(x, keep=hint)), x)
    np.testing.assert_allclose(to_numpy_detached(found), 3 * to_numpy(x))
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

    def forward(x, keep):
        start = keras.ops.ones_like(x[0])
        product, before = backend.scan(lambda c, row: (c * row, c), start, x)
        return product, (x, before)

    def backward(residuals, cotangent):
        _, gradient = backend.scan(
            lambda after, row: (after * row[0], after * row[1]),
            cotangent,
            residuals,
            reverse=True,
        )
        return (gradient,)

    return backend.custom_vjp(forward, backward)


if BACKEND == "tensorflow":

    def test_custom_vjp_third_derivative_of_a_function(rng):
        """What the forward function made in a graph has no gradient."""
        import tensorflow as tf

        op = tf.function(product_op())
        x = rng.normal(size=(3, 2))
        direction = rng.normal(size=(3, 2))

        def derivative(function, order):
            if order == 0:
                return function

            def gradient(x):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = tf.reduce_sum(derivative(function, order - 1)(x) ** 2)
                return tape.gradient(y, x) * direction

            return gradient

        found, right = (
            derivative(function, 3)(tf.constant(x))
            for function in (op, lambda x: tf.reduce_prod(x, 0))
        )
        assert abs(right.numpy()).max() > 1e-3
        close(found, right, rtol=1e-10)


def test_current_trace():
    """The same where nothing else is traced, another inside of a program."""
    outside, inside = backend.current_trace(), []

    def program(x):
        inside.extend(backend.current_trace() for _ in range(2))
        return 2.0 * x

    compiled(program)(keras.ops.ones(2))
    assert inside[0] == inside[1]
    assert backend.current_trace() == outside
    if BACKEND == "jax":
        assert inside[0] != outside
    else:
        assert inside[0] is None
