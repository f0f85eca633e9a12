"""Sequence layers against their oracles: sizes of one, zeros, activations."""

import numpy as np
import pytest
from arrays import close
from descriptors import BY_NAME, SEQUENCE_LAYERS, STEPWISE
from pairwise import one_everywhere
from recurrence import Problem


@pytest.mark.parametrize(
    "shape, units", [((1, 4, 1), 3), ((3, 1, 2), 1), ((1, 1, 1), 1)]
)
@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
def test_sizes_of_one(row, use_fused, shape, units):
    problem = Problem(
        row,
        {"units": units, "use_fused": use_fused, "return_sequences": True},
        given_states=True,
        training=True,
        shape=shape,
    )
    if row.batch_statistics and shape[0] == 1:
        with pytest.warns(UserWarning, match="variance is 0.*LayerNorm"):
            problem.check()
    else:
        problem.check()


def bump(z):
    return z / (1.0 + z * z)


@pytest.mark.parametrize(
    "activation, recurrent, oracle",
    [
        # What a fused op may not know must come out right all the same.
        (bump, bump, (bump, bump)),
        ("relu", None, (lambda z: np.where(z.real > 0, z, 0.0), lambda z: z)),
    ],
    ids=["own", "relu"],
)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_other_activations(row, activation, recurrent, oracle):
    names = ("activation", "recurrent_activation")[
        : 1 + ("RNN" not in row.name)
    ]
    arguments = dict(zip(names, (activation, recurrent), strict=False))
    options = dict(zip(names, oracle, strict=False))
    problem = Problem(
        row, {**arguments, "return_sequences": True}, given_states=True
    )
    problem.check(oracle=options)


@pytest.mark.parametrize("row", STEPWISE, ids=str)
def test_a_bad_row_stays_alone(row):
    problem = Problem(row, {"return_sequences": True})
    clean = problem.outputs(problem.layer())[0]
    problem.x[1, 2] = np.nan
    for use_fused in (False, "auto"):
        y = problem.outputs(problem.layer(use_fused=use_fused))[0]
        close(y[[0, 2]], clean[[0, 2]], rtol=1e-12)
        assert np.isfinite(y[1, :2]).all() and np.isnan(y[1, 2:]).all()


@pytest.mark.parametrize("site", [("kernel", "recurrent"), ("sum",)], ids=str)
def test_all_gates_of_an_lstm_are_the_papers(site):
    """To the last bit, and not those of "gate"."""
    problem = Problem(
        BY_NAME["LNLSTM"], {"normalize": (*site, "state")}, given_states=True
    )
    paper, together, each = (
        problem.outputs(problem.layer(groups=groups))[0]
        for groups in ("paper", "all", "gate")
    )
    np.testing.assert_array_equal(together, paper)
    assert np.abs(each - paper).max() > 1e-3
