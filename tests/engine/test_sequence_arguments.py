"""Arguments of the sequence functions: steps, weights, cotangents."""

import inspect
import logging

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import (
    BY_NAME,
    SEQUENCE_LAYERS,
    STEPWISE,
    B,
    D,
    T,
    U,
    random_weight,
)
from recurrence import Problem, layer_of
from refusals import refused
from tolerances import FLOAT32_VALUES, FLOAT64

from keras_ln import ops

MOVING = ("state_moving_mean", "state_moving_variance")
EVERY_OP = pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)


def call(row, arguments, **options):
    """The row's function, with all that it needs; the last output alone."""
    if row.batch_statistics:
        options = {"learn": False, **options}
    return row.function(**arguments, **options)[0]


def arguments_of(row):
    rng = np.random.default_rng(1)
    return {
        "sequences": rng.normal(size=(B, T, D)).astype("float32"),
        "initial_states": None,
        "weights": {
            name: random_weight(name, shape, rng).astype("float32")
            for name, shape in row.weights.items()
        },
    }


def numbers(tensors):
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(tensors)]


def lstm_arguments(dtype="float32"):
    rng = np.random.default_rng(0)

    def tensor(*shape):
        return keras.ops.convert_to_tensor(rng.normal(size=shape).astype(dtype))

    return {
        "sequences": tensor(2, 5, 3),
        "initial_states": [tensor(2, 4), tensor(2, 4)],
        "weights": {"kernel": tensor(3, 16), "recurrent_kernel": tensor(4, 16)},
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("activation", "elu", "activation.*sigmoid, tanh.*elu"),
        ("recurrent_activation", "gelu", "recurrent_activation.*gelu"),
        ("unroll", True, "unroll=True asks for an unrolled loop"),
    ],
)
def test_what_one_op_cannot_run(name, value, message):
    with pytest.raises(ValueError, match=f"ln_lstm cannot.*{message}.*auto"):
        ops.ln_lstm(**lstm_arguments(), **{name: value}, use_fused=True)
    found, right = (
        numbers(ops.ln_lstm(**lstm_arguments(), **{name: value}, use_fused=use))
        for use in ("auto", False)
    )
    plain = numbers(ops.ln_lstm(**lstm_arguments()))
    for a, b, c in zip(found, right, plain, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (abs(a - c).max() > 1e-2) == (name != "unroll")


@EVERY_OP
def test_no_zoneout_by_default(row):
    # tf.function of an op hands it the defaults of its signature.
    parameters = inspect.signature(row.function).parameters
    assert parameters["zoneout"].default == 0.0


@EVERY_OP
def test_weights_as_nested_lists(row):
    arguments = arguments_of(row)
    right = numbers(call(row, arguments))
    arguments["weights"] = {
        name: weight.tolist() for name, weight in arguments["weights"].items()
    }
    found = numbers(call(row, arguments))
    close(found, right, **FLOAT32_VALUES)


def test_states_that_add_up_start_wide():
    arguments = lstm_arguments("float16")
    _, outputs, states = ops.ln_lstm(**{**arguments, "initial_states": None})
    found = [keras.backend.standardize_dtype(x.dtype) for x in states]
    assert found == ["float16", "float32"]
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


def test_masks_of_another_dtype():
    arguments = lstm_arguments()
    rng = np.random.default_rng(0)
    mask = rng.random((2, 5)) < 0.5
    dropout = {
        "input_mask": rng.integers(0, 2, (2, 3)) * 2.0,
        "recurrent_mask": rng.integers(0, 2, (2, 4)) * 2.0,
    }
    wanted = {n: m.astype("float32") for n, m in dropout.items()}
    found = ops.ln_lstm(**arguments, mask=mask.astype("int32"), **dropout)
    right = ops.ln_lstm(**arguments, mask=mask, **wanted)
    np.testing.assert_equal(numbers(found), numbers(right))


EVERY_STEP = pytest.mark.parametrize("row", STEPWISE, ids=str)


def weights_of(row):
    problem = Problem(row, {}, given_states=True)
    layer = problem.layer()
    return problem, {v.name: to_numpy(v) for v in layer.weights if v.trainable}


def step_of(row):
    return getattr(ops, f"{row.op}_step")


@pytest.mark.parametrize("kind", [list, tuple])
@EVERY_STEP
def test_steps_are_the_sequence(row, kind):
    """With dropout masks and zoneout; states keep their structure."""
    problem, weights = weights_of(row)
    rng = np.random.default_rng(0)
    batch, steps, features = problem.x.shape
    units = problem.states[0].shape[1]
    masks = {
        "input_mask": rng.integers(0, 2, (batch, features)) * 2.0,
        "recurrent_mask": rng.integers(0, 2, (batch, units)) * 2.0,
    }
    choices = rng.random((batch, steps, units)) < 0.4
    states = kind(problem.states)
    _, outputs, final = row.function(
        problem.x, states, weights, zoneout=choices, **masks
    )
    for t in range(steps):
        h, states = step_of(row)(
            problem.x[:, t], states, weights, zoneout=choices[:, t], **masks
        )
        close(h, to_numpy(outputs)[:, t], **FLOAT64)
    assert type(states) is type(final) is kind
    close(states, final, **FLOAT64)


@EVERY_STEP
def test_states_of_a_step(row):
    """Of the sequence op they are `initial_states`."""
    step, weights = step_of(row), arguments_of(row)["weights"]
    right = [np.ones((B, U))] * row.state_count
    last = f"`states(\\[{row.state_count - 1}\\])?` must "
    wide, whole = np.ones((B, U + 1)), np.ones((B, U), "int32")
    for kind in (list, tuple, lambda states: [(state,) for state in states]):
        for states, words in (
            ([*right, right[0]], (r"`states` of \w+ must", rf"\({B}, {U}\)")),
            ([*right[1:], wide], ("`states` of", rf"\({B}, {U + 1}\)")),
            ([*right[1:], whole], (last, "int32", r"cast\(states")),
        ):
            with refused(*words):
                step(np.ones((B, D)), kind(states), weights)
        h, _ = step(np.ones((B, D)), kind(right), weights)
        assert tuple(h.shape) == (B, U)
    with refused("`states` must be", "list of tensors", "a dict with h"):
        step(np.ones((B, D)), {"h": right[0]}, weights)
    if row.state_count == 1:
        with refused("`states` of", rf"\({B}, {U + 1}\)"):
            step(np.ones((B, D)), wide, weights)
    with refused(f"{row.op}_step has no .*`states_nam`", error=TypeError):
        step(np.ones((B, D)), None, weights, states_nam="h")


if BACKEND == "tensorflow":

    @pytest.mark.every_backend
    def test_steps_in_a_while_loop():
        """States by name; AutoGraph reads a step without a warning."""
        import tensorflow as tf

        problem, weights = weights_of(BY_NAME["LNLSTM"])
        said = []
        handler = logging.Handler()
        handler.emit = said.append
        tf.get_logger().addHandler(handler)

        @tf.function
        def run(x, states):
            steps = tf.shape(x)[1]

            def step(t, states, outputs):
                given = (states["h"], states["c"])
                output, (h, c) = ops.ln_lstm_step(x[:, t], given, weights)
                return t + 1, {"h": h, "c": c}, outputs.write(t, output)

            outputs = tf.TensorArray(x.dtype, steps)
            *_, outputs = tf.while_loop(
                lambda t, *_: t < steps, step, (0, states, outputs)
            )
            return tf.transpose(outputs.stack(), (1, 0, 2))

        states = dict(zip("hc", problem.states, strict=True))
        found = run(tf.constant(problem.x), states)
        tf.get_logger().removeHandler(handler)
        _, expected, _ = ops.ln_lstm(problem.x, problem.states, weights)
        close(found, expected, **FLOAT64)
        assert [record.getMessage() for record in said] == []

    @pytest.mark.every_backend
    @EVERY_OP
    def test_ops_that_autograph_reads(row):
        import tensorflow as tf

        arguments = arguments_of(row)
        found = tf.function(lambda: call(row, arguments))()
        close(found, call(row, arguments), **FLOAT32_VALUES)

    @pytest.mark.every_backend
    def test_features_must_be_known():
        import tensorflow as tf

        weights = {"kernel": np.ones((3, 4)), "recurrent_kernel": np.eye(4)}
        step = tf.function(
            lambda x: ops.ln_simple_rnn_step(x, None, weights),
            input_signature=[tf.TensorSpec((2, None))],
        )
        with pytest.raises(ValueError, match="Axis -1 of `inputs` must have a"):
            step.get_concrete_function()


RNG = np.random.default_rng(9)
X = RNG.normal(size=(B, T, D))


if BACKEND == "tensorflow":
    import tensorflow as tf

    ROWS = np.array([2, 0, 2])
    # Behind a layer: what sends tf.IndexedSlices back, and the same densely.
    GATHERS = {
        "gather": lambda y: tf.gather(y, ROWS),
        "take": lambda y: keras.ops.take(y, ROWS, axis=0),
        "embedding_lookup": lambda y: tf.nn.embedding_lookup(y, ROWS),
    }

    def dense_gather(y):
        return tf.tensordot(tf.one_hot(ROWS, B, dtype=y.dtype), y, 1)

    def gradients(layer, gather, cotangent):
        """By x, and then by x of the first one's squares."""
        x = tf.constant(X)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(gather(layer(x)) ** 2 * cotangent)
            first = inner.gradient(loss, x)
            penalty = tf.reduce_sum(gather(first) ** 2)
        return first, outer.gradient(penalty, x)

    @pytest.mark.parametrize("mode", ["eager", "graph"])
    @pytest.mark.parametrize(
        ("name", "gather"),
        [
            *(("LayerNormalization", gather) for gather in GATHERS),
            ("LNSimpleRNN", "gather"),
        ],
    )
    @pytest.mark.every_backend
    def test_indexed_slices(name, gather, mode):
        recurrent = {} if name[:2] == "La" else {"return_sequences": True}
        layer = layer_of(name, **recurrent)
        size = (B, T, U if name == "LNSimpleRNN" else D)
        cotangent = RNG.normal(size=size)
        found, right = (
            (tf.function(gradients) if mode == "graph" else gradients)(
                layer, function, cotangent
            )
            for function in (GATHERS[gather], dense_gather)
        )
        for a, b in zip(found, right, strict=True):
            assert abs(b.numpy()).max() > 1e-3
            close(a, b, **FLOAT64)


elif BACKEND == "jax":
    import jax

    @pytest.mark.every_backend
    def test_masks_have_no_cotangent():
        """That of a bool is float0, that of an unused output zero."""
        layer = layer_of("LNSimpleRNN")
        mask = np.ones((B, T), bool)
        y, pull = jax.vjp(lambda x, mask: layer(x, mask=mask), X, mask)
        of_x, of_mask = pull(y)
        assert of_mask.dtype == jax.dtypes.float0 and of_mask.shape == (B, T)
        assert abs(of_x).max() > 1e-3


@pytest.mark.every_backend
def test_what_is_not_connected():
    """The gradient of one state, and that of what was not used."""
    layer = Problem(BY_NAME["LNSimpleRNN"], {"return_state": True}).layer()
    other = keras.ops.ones((2,), dtype="float64")
    if BACKEND == "tensorflow":
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch([x, other])
            loss = tf.reduce_sum(layer(x)[1])
        found, none = tape.gradient(loss, [x, other])
        assert none is None
    elif BACKEND == "jax":
        found, zero = jax.grad(
            lambda x, other: layer(x)[1].sum() + 0.0 * other.sum(), (0, 1)
        )(X, other)
        assert not zero.any()
    else:
        import torch

        x = torch.tensor(X, requires_grad=True)
        found, none = torch.autograd.grad(
            layer(x)[1].sum(), [x, other.requires_grad_()], allow_unused=True
        )
        assert none is None
    assert abs(keras.ops.convert_to_numpy(found)).max() > 1e-3
