"""Dropout of the inputs and of h: seeded, constant over time."""

import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import forward
from descriptors import SEQUENCE_LAYERS
from pairwise import one_everywhere
from recurrence import MASKS, Problem
from tolerances import FLOAT64

import keras_ln

RATE = 0.4


@pytest.mark.parametrize("kind", ["dropout", "recurrent_dropout", "zoneout"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_seed_and_inference(row, kind):
    def outputs(seed, training, calls=1, **arguments):
        problem = Problem(
            row,
            {kind: RATE, "seed": seed, "return_sequences": True, **arguments},
            given_states=True,
            training=training,
        )
        layer = problem.layer()
        return [problem.outputs(layer)[0] for _ in range(calls)]

    first, second = outputs(7, True, calls=2)
    assert abs(first - second).max() > 1e-3, "a new mask in every call"
    np.testing.assert_array_equal(outputs(7, True)[0], first)
    assert abs(outputs(8, True)[0] - first).max() > 1e-3
    inferred, none = outputs(7, False)[0], outputs(7, False, **{kind: 0.0})[0]
    np.testing.assert_array_equal(outputs(7, False)[0], inferred)
    # Zoneout leaves its expectation, the share.
    assert (abs(inferred - none).max() > 1e-3) == (kind == "zoneout")


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_oracle_is_given_what_is_dropped(row, use_fused):
    """Read off the gradient of x: of each row its own, in all steps."""
    arguments = {"dropout": RATE, "use_fused": use_fused}
    problem = Problem(row, arguments, training=True, shape=(40, 3, 6))
    layer = problem.layer()
    result = problem.run(layer)
    kept = (result.gradients["x"] != 0.0).any(axis=1)
    # 240 draws: a standard deviation of 0.032.
    assert abs((1 - kept).mean() - RATE) < 0.13
    assert len(np.unique(kept, axis=0)) > 10
    masks = {"dropout_mask": kept / (1.0 - RATE)}
    outputs, _ = problem.oracle(problem.arrays(layer), **masks)
    close(result.outputs, outputs, **FLOAT64)


@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
def test_compiled_calls_draw_anew(row):
    """A mask must not be frozen into the compiled function."""
    problem = Problem(row, {"recurrent_dropout": RATE}, given_states=True)
    problem.mask = MASKS["left"]
    problem.training = True
    layer = problem.layer()
    values = [problem.run(layer, compiled=True).outputs[0] for _ in range(2)]
    assert abs(values[0] - values[1]).max() > 1e-3
    silent = forward(layer, training=False)
    options = {"initial_state": problem.states, "mask": problem.mask}
    once, again = (silent(problem.x, **options)[0] for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_masks_of_the_cell_alone_are_not_used_by_the_layer():
    x = np.ones((3, 4, 2), "float32")
    layer = keras_ln.LNLSTM(5, dropout=RATE, recurrent_dropout=RATE)
    layer(x)
    states = layer.cell.get_initial_state(3)
    layer.cell(x[:, 0], states, training=True)
    layer(x)
    assert layer(x[:2], training=True).shape == (2, 5)


class AlwaysDropping(keras_ln.LNLSTMCell):
    """Drops at inference too: Monte Carlo dropout."""

    def step(self, projected, states, weights, recurrent_mask):
        mask = self.get_recurrent_dropout_mask(states[0])
        return super().step(projected, states, weights, mask)


class Uncertain(keras_ln.LNLSTM):
    cell_class = AlwaysDropping


@pytest.mark.every_backend
def test_monte_carlo_dropout():
    """Each call has a mask of its own, for as many rows as it has."""
    x = np.ones((3, 4, 2), "float32")
    layer = Uncertain(5, recurrent_dropout=RATE)
    first, second = to_numpy(layer(x)), to_numpy(layer(x))
    assert abs(first - second).max() > 1e-3
    assert layer(x[:1]).shape == (1, 5)
