"""State that is kept between calls, and steps that are unrolled."""

import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import (
    BY_NAME,
    SEQUENCE_LAYERS,
)
from recurrence import Problem
from tolerances import FLOAT64

BNLSTM = BY_NAME["BNLSTM"]


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_stateful(row, use_fused):
    """Two halves of a sequence, one after the other, are the whole."""
    problem = Problem(row, {"return_sequences": True, "use_fused": use_fused})
    whole = problem.outputs(problem.layer())[0]
    layer = problem.layer(stateful=True)
    first, second = (
        to_numpy(layer(problem.x[:, half]))
        for half in (slice(0, 3), slice(3, 4))
    )
    close(np.concatenate([first, second], axis=1), whole, **FLOAT64)
    kept = [to_numpy(state).copy() for state in layer.states]
    close(kept[0], whole[:, -1], **FLOAT64)
    layer.reset_state()
    assert all((to_numpy(state) == 0.0).all() for state in layer.states)
    again = to_numpy(layer(problem.x[:, :3]))
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_stateful_training(row):
    """The gradient does not reach back beyond the call."""
    problem = Problem(row, {"stateful": True}, training=True)
    layer = problem.layer()
    problem.outputs(layer)
    states = layer.states[: row.state_count]
    carried = [to_numpy(state).copy() for state in states]
    result = problem.run(layer)
    twin = Problem(row, {}, training=True, given_states=True)
    twin.states = carried
    expected = twin.run(twin.layer())
    close(result.outputs[0], expected.outputs[0], **FLOAT64)
    close(expected.gradients, result.gradients, **FLOAT64)
