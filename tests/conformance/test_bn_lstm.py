"""BNLSTM: the statistics of each step, also of a sequence in pieces."""

import warnings

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND, forward
from descriptors import BY_NAME, B, D, T, U, named_weights
from recurrence import MASKS, Problem, compare
from tolerances import FLOAT64

import keras_ln

ROW = BY_NAME["BNLSTM"]
BOTH = pytest.mark.parametrize("use_fused", [False, "auto"])


def moving(layer):
    """The moving statistics, by name."""
    return {
        name: value
        for name, value in named_weights(layer).items()
        if "_moving_" in name
    }


def check_moving(layer, expected):
    found = moving(layer)
    assert set(found) == set(expected) and expected
    close(expected, found, **FLOAT64)


@BOTH
@pytest.mark.parametrize(
    "mask, momentum",
    [*((mask, 0.9) for mask in MASKS), ("right", 0.0), ("right", 1.0)],
)
def test_moving_averages_after_one_step(mask, momentum, use_fused):
    problem = Problem(
        ROW,
        # Steps count as they are visited.
        {
            "momentum": momentum,
            "use_fused": use_fused,
            "go_backwards": momentum == 0.0,
        },
        mask=MASKS[mask],
        given_states=True,
        training=True,
    )
    layer = problem.layer()
    before = moving(layer)
    _, _, (_, expected) = problem.expected(layer)
    problem.outputs(layer)
    check_moving(layer, expected)
    changed = any((expected[k] != before[k]).any() for k in before)
    assert changed == (momentum < 1.0 and mask != "all")


@BOTH
@pytest.mark.parametrize("go_backwards", [False, True])
def test_a_step_that_no_row_has_moves_nothing(go_backwards, use_fused):
    """Steps count as visited: backwards, the first of x is the last."""
    mask = np.ones((B, T), bool)
    mask[:, 0] = False
    arguments = {"momentum": 0.5, "use_fused": use_fused}
    problem = Problem(
        ROW,
        {**arguments, "go_backwards": go_backwards},
        mask=mask,
        training=True,
    )
    layer = problem.layer()
    before = moving(layer)
    problem.outputs(layer)
    for name, value in moving(layer).items():
        moved = (value != before[name]).any(axis=1)
        steps = np.arange(T) != (T - 1 if go_backwards else 0)
        np.testing.assert_array_equal(moved, steps, err_msg=name)


def test_max_steps_from_the_data():
    layer = keras_ln.BNLSTM(U)
    layer.build((B, T, D))
    assert {w.shape[0] for w in layer.non_trainable_weights} == {T}
    assert layer.get_config()["max_steps"] is None


def test_keras_own_loop():
    """Infers, and trains where there are no statistics."""
    for arguments, training in (({}, False), ({"normalize": ()}, True)):
        loop = keras.layers.RNN(BY_NAME["BNLSTMCell"].make(**arguments))
        y = loop(np.ones((B, T, D), "float32"), training=training)
        assert y.shape == (B, U)


@BOTH
@pytest.mark.parametrize("normalize", [(), ("state",)])
def test_one_row_is_too_few_where_there_are_statistics(normalize, use_fused):
    layer = keras_ln.BNLSTM(U, normalize=normalize, use_fused=use_fused)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer(np.ones((1, T, D), "float32"), training=True)
    ours = [w for w in caught if "the variance is 0" in str(w.message)]
    assert len(ours) == len(normalize)


def test_a_cell_by_itself_counts_as_far_as_its_dtype():
    states = [(2, 4), (2, 4), (2, 1)]
    for steps, dtype in ((257, "bfloat16"), (257, "mixed_bfloat16")):
        cell = keras_ln.BNLSTMCell(4, max_steps=steps, dtype=dtype)
        given = [keras.ops.zeros(s, "bfloat16") for s in states]
        with pytest.raises(ValueError, match="bfloat16 counts to 256"):
            cell(keras.ops.ones((2, 3), "bfloat16"), given)
    cell = keras_ln.BNLSTMCell(4, max_steps=256, dtype="bfloat16")
    cell(keras.ops.ones((2, 3), "bfloat16"), given)


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
    np.testing.assert_equal([*map(to_numpy, clone.layers[0].states)], kept)
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
        np.testing.assert_equal([*map(to_numpy, model.layers[0].states)], kept)
        found.append(model.layers[0].get_weights())
    close(*found, **FLOAT64)
