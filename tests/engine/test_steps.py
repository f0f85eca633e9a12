"""One step of a sequence op as a function: values, and what it refuses."""

import logging

import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import BY_NAME, STEPWISE
from recurrence import Problem
from tolerances import FLOAT64

from keras_ln import ops

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
    def test_features_must_be_known():
        import tensorflow as tf

        weights = {"kernel": np.ones((3, 4)), "recurrent_kernel": np.eye(4)}
        step = tf.function(
            lambda x: ops.ln_simple_rnn_step(x, None, weights),
            input_signature=[tf.TensorSpec((2, None))],
        )
        with pytest.raises(ValueError, match="Axis -1 of `inputs` must have a"):
            step.get_concrete_function()
