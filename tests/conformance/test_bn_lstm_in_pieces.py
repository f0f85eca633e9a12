"""Sequences in pieces: which step's statistics BNLSTM begins with."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND, forward
from descriptors import BY_NAME, B, D, T, U
from recurrence import MASKS, Problem, compare
from tolerances import FLOAT64

import keras_ln

BNLSTM = BY_NAME["BNLSTM"]


def pieces(problem, layer):
    """Outputs of two calls, the second going on from the first."""
    first = slice(1, T) if layer.go_backwards else slice(0, T - 1)
    second = slice(0, 1) if layer.go_backwards else slice(T - 1, T)
    outputs, states = [], {}
    for piece in (first, second):
        mask = problem.mask
        y, *new = layer(
            problem.x[:, piece],
            mask=None if mask is None else mask[:, piece],
            training=problem.training,
            **states,
        )
        outputs.append(to_numpy(y))
        if not layer.stateful:
            states = {"initial_state": new, "first_step": T - 1}
    return np.concatenate(outputs, axis=1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"mask": "middle", "use_fused": False},
        {"mask": "row", "go_backwards": True},
        {"max_steps": 2, "go_backwards": True, "use_fused": False},
        {"max_steps": 7},
        {"normalize": ("kernel",), "unroll": True},
    ],
    ids=str,
)
def test_pieces_are_the_whole(case, training):
    """Each step uses the statistics of its place in the whole sequence."""
    arguments = {"max_steps": T, "momentum": 0.5, **case}
    mask = MASKS[arguments.pop("mask", "none")]
    arguments |= {"return_sequences": True, "return_state": True}
    problem = Problem(BNLSTM, arguments, mask=mask, training=training)
    whole = problem.layer()
    expected = problem.outputs(whole)[0]
    for stateful in (True, False):
        layer = problem.layer(stateful=stateful)
        found = pieces(problem, layer)
        close(found, expected, **FLOAT64)
        close(layer.weights, whole.weights, **FLOAT64)


@pytest.mark.parametrize("first_step", [1, 3, 2**31 - 1])
@pytest.mark.parametrize(
    "case",
    [
        {"training": True},
        {"use_fused": False, "mask": "middle"},
        {"go_backwards": True, "max_steps": 5, "mask": "left"},
        {"training": True, "use_fused": False, "max_steps": 5},
    ],
    ids=str,
)
def test_first_step_against_the_oracle(case, first_step):
    """Values, gradients and moving statistics; a number and a tensor."""
    case = {"mask": "none", "training": False, "max_steps": T, **case}
    mask, training = MASKS[case.pop("mask")], case.pop("training")
    problem = Problem(
        BNLSTM,
        {"momentum": 0.5, **case},
        mask=mask,
        training=training,
        given_states=True,
    )
    outputs, gradients, (_, moving) = problem.expected(
        problem.layer(), first_step=first_step
    )
    layer = problem.layer()
    compare(
        problem.run(layer, first_step=np.int32(first_step)), outputs, gradients
    )
    other = problem.layer()
    call = {"initial_state": problem.states, "mask": mask}
    y = other(problem.x, **call, training=training, first_step=first_step)
    close(y, outputs[0], **FLOAT64)
    for name, value in moving.items():
        for twin in (layer.cell, other.cell):
            close(getattr(twin, name), value, name, **FLOAT64)


@pytest.mark.every_backend
def test_a_tensor_as_first_step_traces_once():
    problem = Problem(BNLSTM, {}, given_states=True)
    layer = problem.layer()
    traces = []
    loop = layer.inner_loop
    object.__setattr__(
        layer, "inner_loop", lambda *a, **k: traces.append(1) or loop(*a, **k)
    )
    compiled = forward(layer)
    for first_step in (0, 1, 2):
        (found,) = compiled(
            problem.x,
            initial_state=problem.states,
            first_step=np.array(first_step, "int32"),
        )
        (expected,), _ = problem.oracle(
            problem.arrays(layer), first_step=first_step
        )
        close(found, expected, **FLOAT64)
    assert len(traces) == (3 if BACKEND == "torch" else 1)


if BACKEND == "tensorflow":

    @pytest.mark.every_backend
    def test_stateful_in_a_compiled_function():
        """JAX's functions keep no states, those of Keras' layers neither."""
        import tensorflow as tf

        problem = Problem(BNLSTM, {"return_sequences": True})
        whole = problem.outputs(problem.layer())[0]
        call = tf.function(problem.layer(stateful=True))
        found = [call(problem.x[:, :2]), call(problem.x[:, 2:])]
        close(tf.concat(found, 1), whole, **FLOAT64)


def test_the_count_is_a_state(tmp_path):
    """Not in files, kept by a conversion, set to zero with the others."""
    problem = Problem(BNLSTM, {"return_sequences": True, "stateful": True})
    inputs = keras.Input(batch_shape=problem.shape[:1] + (None, D))
    # Not tanh, which Keras computes in float32 on JAX.
    lstm = keras.layers.LSTM(U, activation="softsign", dtype="float64")
    model = keras.Sequential([inputs, problem.layer(), lstm])
    first, second = problem.x[:, :2], problem.x[:, 2:]
    model(first)
    clone = keras_ln.with_layer_norm(model, ())
    kept = [to_numpy(state).copy() for state in model.layers[0].states]
    assert len(kept) == 3 and kept[-1] == 2
    keras_ln.reestimate_statistics(clone, problem.x, batch_size=B)
    for state, value in zip(clone.layers[0].states, kept, strict=True):
        np.testing.assert_array_equal(to_numpy(state), value)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    clone = keras_ln.with_layer_norm(model, ())
    expected = to_numpy(model(second))
    found = to_numpy(clone(second))
    close(found, expected, **FLOAT64)
    assert abs(to_numpy(loaded(second)) - expected).max() > 1e-3
    for one in (model, loaded):
        one.layers[0].reset_state()
        one(first)
        close(one(second), expected, **FLOAT64)


def test_statistics_are_taken_from_the_first_step():
    """Whatever the layer saw before, which it goes on from afterwards."""
    problem = Problem(BNLSTM, {"stateful": True})
    found = []
    for steps in (0, 2):
        inputs = keras.Input(batch_shape=problem.shape[:1] + (None, D))
        model = keras.Sequential([inputs, problem.layer()])
        if steps:
            model(problem.x[:, :steps])
        kept = [to_numpy(state).copy() for state in model.layers[0].states]
        assert kept[-1] == steps
        keras_ln.reestimate_statistics(model, problem.x, batch_size=B)
        for state, value in zip(model.layers[0].states, kept, strict=True):
            np.testing.assert_array_equal(to_numpy(state), value)
        found.append(model.layers[0].get_weights())
    for fresh, used in zip(*found, strict=True):
        close(used, fresh, **FLOAT64)
