"""Forward-mode derivatives: right, or refused with a way out."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS, B, D
from recurrence import layer_of

from keras_ln import ops

pytestmark = pytest.mark.every_backend
# Central differences with a step of 1e-6: 1e-16 / 1e-6, and the third
# derivative times 1e-12.
DIFFERENCES = {"rtol": 1e-6, "atol": 1e-7}
RNG = np.random.default_rng(3)
# TensorFlow takes a second or two for each step.
SHAPE = (B, 2, D)
X, DIRECTION = RNG.normal(size=(2, *SHAPE))


def differences(function, x, direction, step=1e-6):
    ahead, behind = (
        to_numpy(function(keras.ops.convert_to_tensor(x + s * direction)))
        for s in (step, -step)
    )
    return (ahead - behind) / (2 * step)


def check(found, function, x=X, direction=DIRECTION):
    right = differences(function, x, direction)
    assert abs(right).max() > 1e-2
    close(found, right, **DIFFERENCES)


NAMES = ["LayerNormalization", "LNSimpleRNN"]


if BACKEND == "tensorflow":
    import tensorflow as tf

    def jvp(function, x, direction):
        with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
            y = function(x)
        return accumulator.jvp(y)

    def gradient_of(function):
        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        return gradient

    def traced_before(function, x, direction):
        function = tf.function(function)
        function(x)
        return jvp(function, x, direction)

    WAYS = {
        "eager": jvp,
        "inside of a tf.function": lambda f, *a: tf.function(
            lambda *a: jvp(f, *a)
        )(*a),
        "outside of a tf.function": traced_before,
    }

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("name", NAMES)
    def test_forward_mode(name, way):
        layer = layer_of(name, SHAPE)
        x, direction = tf.constant(X), tf.constant(DIRECTION)
        check(WAYS[way](layer, x, direction), layer)

    @pytest.mark.parametrize("name", NAMES)
    def test_forward_over_reverse(name):
        layer = layer_of(name, SHAPE)
        gradient = gradient_of(lambda x: tf.reduce_sum(layer(x) ** 3))
        x, direction = tf.constant(X), tf.constant(DIRECTION)
        for function in (gradient, tf.function(gradient)):
            check(jvp(function, x, direction), gradient)

    def test_forward_mode_needs_a_length_in_a_graph():
        layer = layer_of("LNSimpleRNN", SHAPE)
        spec = tf.TensorSpec([None, None, D], tf.float64)

        @tf.function(input_signature=[spec, spec])
        def derivative(x, direction):
            return jvp(layer, x, direction)

        with pytest.raises(ValueError, match="known number of time steps"):
            derivative(X, DIRECTION)


elif BACKEND == "torch":
    import torch
    from torch.autograd import forward_ad

    gradient_of = torch.func.grad

    def jvp(function, x, direction):
        return torch.func.jvp(function, (x,), (direction,))[1]

    def by_dual_numbers(function, x, direction):
        with forward_ad.dual_level():
            y = function(forward_ad.make_dual(x, direction))
            return forward_ad.unpack_dual(y).tangent

    WAYS = {"torch.func": jvp, "dual numbers": by_dual_numbers}

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("name", [*NAMES, "LNLSTM", "BNLSTM"])
    def test_forward_mode(name, way):
        layer = layer_of(name, SHAPE)
        x, direction = torch.tensor(X), torch.tensor(DIRECTION)
        check(WAYS[way](layer, x, direction), layer)

    @pytest.mark.parametrize("name", NAMES)
    def test_forward_over_reverse(name):
        layer = layer_of(name, SHAPE)

        def loss(x):
            return (layer(x) ** 3).sum()

        found = torch.func.hessian(loss)(torch.tensor(X))
        right = torch.autograd.functional.hessian(loss, torch.tensor(X))
        assert abs(right).max() > 1e-2
        close(found.detach(), right, rtol=1e-9, atol=1e-9)

else:
    import jax

    gradient_of = jax.grad

    def jvp(function, x, direction):
        return jax.jvp(function, (x,), (direction,))[1]

    @pytest.mark.parametrize("name", NAMES)
    def test_forward_mode_has_a_way_out(name):
        layer = layer_of(name, SHAPE)

        def derivative():
            return jvp(layer, X, DIRECTION)

        way_out = f"{name}.*forward-mode.*custom_vjp.*portable.*`use_fused`"
        for ask in (
            derivative,
            lambda: jax.jacfwd(layer)(X),
            lambda: jax.grad(lambda v: jax.jvp(layer, (X,), (v,))[1].sum())(X),
        ):
            with pytest.raises(TypeError, match=way_out):
                ask()
        # Where the error comes later, outside of the layer, it is JAX's own.
        with pytest.raises(TypeError, match="custom_vjp"):
            jax.linearize(layer, X)[1](DIRECTION)
        with ops.portable():
            check(derivative(), layer)

    @pytest.mark.parametrize("name", NAMES)
    def test_forward_over_reverse(name):
        layer = layer_of(name, SHAPE)
        gradient = gradient_of(lambda x: (layer(x) ** 3).sum())
        check(jvp(gradient, X, DIRECTION), gradient)

    @pytest.mark.parametrize(
        "row", [row for row in SEQUENCE_LAYERS if "LSTM" in row.name], ids=str
    )
    def test_forward_mode_of_the_cell_loop(row):
        layer = layer_of(row.name, SHAPE, use_fused=False)
        check(jvp(layer, X, DIRECTION), layer)


@pytest.mark.promise("Masked steps may hold anything")
def test_padding_may_hold_anything():
    """The derivative of the kernel's gradient, which multiplies it by zero."""
    mask = np.array([[True, False], [False, True], [True, True]])
    weights = {
        v.name: keras.ops.convert_to_tensor(to_numpy(v))
        for v in layer_of("LNSimpleRNN", SHAPE).weights
        if v.name != "seed_generator_state"
    }
    kernel = weights["kernel"]
    direction = keras.ops.convert_to_tensor(RNG.normal(size=kernel.shape))

    def derivative(value):
        x = keras.ops.convert_to_tensor(np.where(mask[..., None], X, value))

        def loss(kernel):
            outputs = ops.ln_simple_rnn(
                *(x, None, {**weights, "kernel": kernel}),
                mask=mask,
                use_fused=False,
            )[1]
            return keras.ops.sum(outputs**3)

        return to_numpy(jvp(gradient_of(loss), kernel, direction))

    right = derivative(0.0)
    assert abs(right).max() > 1e-2
    for value in (np.nan, np.inf):
        np.testing.assert_array_equal(derivative(value), right)


if BACKEND == "torch":
    import torch
    from torch.autograd import forward_ad

    @pytest.mark.full
    @pytest.mark.parametrize("name", ["LNLSTM", "BNLSTM"])
    @pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functoo")
    def test_compiled_derivatives(name):
        """Of torch.func and of dual numbers, around a layer or inside it."""
        torch.compiler.reset()
        layer = layer_of(name)
        x, direction = torch.tensor(X), torch.tensor(DIRECTION)

        def compile(function):
            return torch.compile(function, backend="eager")

        def loss(x):
            return (layer(x) ** 3).sum()

        def along(x):
            return torch.func.jvp(layer, (x,), (direction,))[1]

        def each(x):
            return torch.func.vmap(
                lambda row: torch.func.grad(loss)(row[None])[0]
            )(x)

        gradient = torch.func.grad(loss)
        for function in (gradient, along, each):
            right = function(x)
            assert abs(right).max() > 1e-3
            close(compile(function)(x).detach(), right.detach())
        # Compiled first for calls without derivatives.
        compiled, compiled_loss = compile(layer), compile(loss)
        close(compiled(x).detach(), layer(x).detach())
        close(compiled_loss(x).detach(), loss(x).detach())
        close(torch.func.grad(compiled_loss)(x), gradient(x))
        with forward_ad.dual_level():
            y = compiled(forward_ad.make_dual(x, direction))
            tangent = forward_ad.unpack_dual(y).tangent
        close(tangent.detach(), along(x).detach())
