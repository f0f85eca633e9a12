"""BNLSTM: the statistics of each step, in training and at inference."""

import warnings

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import BY_NAME, B, D, T, U, named_weights
from recurrence import MASKS, Problem
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
