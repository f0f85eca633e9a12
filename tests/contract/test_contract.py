"""What every backend module promises, tested on the one that Keras runs."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import compiled, gradients

import keras_ln
from keras_ln import backend

pytestmark = pytest.mark.every_backend
BACKEND = keras.backend.backend()


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
        total = carry["total"] + x["x"] * carry["product"]
        product = carry["product"] * 0.5 + x["bias"]
        y = {"total": total, "sum": x["x"] + x["bias"]}
        return {"total": total, "product": product}, y

    def run(xs, bias):
        init = {"total": keras.ops.zeros_like(xs[0])}
        init["product"] = keras.ops.ones_like(xs[0])
        rows = {"x": xs, "bias": bias}
        return backend.scan(step, init, rows, reverse=reverse)

    carry, ys = mode(run)(*(keras.ops.convert_to_tensor(v) for v in (xs, bias)))
    total, product = carry["total"], carry["product"]

    t, p, expected = np.zeros(4), np.ones(4), np.zeros((6, 4))
    for i in reversed(range(6)) if reverse else range(6):
        t, p = t + xs[i] * p, p * 0.5 + bias[i]
        expected[i] = t
    close(total, t, rtol=1e-13)
    close(product, p, rtol=1e-13)
    close(ys["total"], expected, rtol=1e-13)
    close(ys["sum"], xs + bias, rtol=1e-13)


def sums(x, reverse):
    """Cumulative sums, by a scan."""

    def step(carry, row):
        total = carry["total"] + row["x"]
        return {"total": total}, {"totals": total}

    init = {"total": keras.ops.zeros_like(x[0])}
    return backend.scan(step, init, {"x": x}, reverse=reverse)[1]["totals"]


def test_scan_is_differentiable(rng):
    xs = rng.normal(size=(5, 3))

    def loss(x):
        carry, ys = backend.scan(
            lambda c, x: ({"c": c["c"] * x["x"]}, {"y": c["c"] + x["x"]}),
            {"c": keras.ops.ones_like(x[0])},
            {"x": x},
        )
        return backend.sum(carry["c"]) + backend.sum(ys["y"] * ys["y"])

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
    close(to_numpy(gradient), expected, rtol=1e-7)


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
            return sums(x, reverse)

        for length in (1, 4):
            x = rng.normal(size=(length, 3))
            expected = x[::-1].cumsum(0)[::-1] if reverse else x.cumsum(0)
            close(cumulative(x), expected, rtol=1e-12)

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

        def forward(arrays, keep):
            x, w = arrays["x"], arrays["w"]
            return {"y": x * w}, {**arrays, "total": x + w}

        seen = []

        def backward(residuals, cotangents):
            seen.append(residuals)
            x, w, c = residuals["x"], residuals["w"], cotangents["y"]
            return {"x": c * w, "w": c * x * 0 + residuals["total"]}

        run_op = backend.custom_vjp(forward, backward)

        def op(x, w):
            return run_op({"x": x, "w": w})["y"]

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


if BACKEND == "jax":

    @pytest.mark.parametrize("reverse", [False, True])
    def test_scan_on_a_gpu(reverse, rng, monkeypatch):
        """Four steps per iteration, and those that are left."""
        import jax

        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

        def cumulative(x):
            return sums(x, reverse)

        for length in (1, 4, 5, 8, 11):
            x = rng.normal(size=(length, 3))
            expected = x[::-1].cumsum(0)[::-1] if reverse else x.cumsum(0)
            close(jax.jit(cumulative)(x), expected, rtol=1e-12)
        assert "unroll=4" in str(jax.make_jaxpr(cumulative)(x))

    def test_converters_see_no_choice_without_kernels(without_kernels):
        """jax2onnx knows JAX's own operations alone."""
        import jax

        layer = keras_ln.LNLSTM(2)
        x = np.ones((1, 3, 2), "float32")
        layer.build(x.shape)
        gradient = jax.grad(lambda x: layer(x).sum())
        assert "keras_ln_choice" not in str(jax.make_jaxpr(gradient)(x))


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
