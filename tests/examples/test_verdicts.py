"""Verdicts, of runs whose differences are known."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import tune
from common import files, plotting, verdicts

LOSS = plotting.Panel("loss", lambda row: row["loss"])


def _runs(*values):
    return [
        plotting.Run(Path(), None if value is None else {"nll": value})
        for value in values
    ]


def _judge(layer, none):
    claim = verdicts.Claim("better", "layer", "none", metric="nll")
    groups = {("none",): _runs(*none), ("layer",): _runs(*layer)}
    (row,) = verdicts.judge(claim, groups)
    return row


@pytest.mark.parametrize(
    ("layer", "none", "verdict"),
    [
        # Paired: every seed is better, though the seeds differ by more.
        ((0.9, 1.8, 2.85, 3.9, 4.8), (1, 2, 3, 4, 5), "agrees"),
        ((1, 2, 3, 4, 5), (0.9, 1.8, 2.85, 3.9, 4.8), "disagrees"),
        ((1.1, 1.9, 3.2, 3.8, 5.0), (1, 2, 3, 4, 5), "undecided"),
        ((0.5, 1.5), (1, 2), "undecided"),
        ((0.5, 1.5, 2.5), (1, 2, 3), "agrees"),  # All by the same.
        ((1, 2, 3), (1, 2, 3), "undecided"),
        ((0.1, 0.2, None), (1, 2, 3), "undecided"),
    ],
)
def test_the_rule(layer, none, verdict):
    row = _judge(layer, none)
    assert row["verdict"] == verdict
    assert row["seeds"] == len(layer)
    assert row["diverged"] == layer.count(None)


def test_the_interval_covers_as_often_as_it_says():
    """Of the mean of 20 numbers, where a bootstrap is about right."""
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        low, high = verdicts.interval(random.normal(3, 1, size=20))
        covered += low < 3 < high
    # 95 expected, somewhat less of so few; 4 deviations around 93.
    assert 83 <= covered
    low, high = verdicts.interval(random.normal(3, 1, size=20))
    assert 0.5 < high - low < 1.3  # 2 * 1.96 / sqrt(20) = 0.88


def _run(folder, losses):
    folder.mkdir()
    files.write_csv(
        folder / "history.csv",
        [
            {"updates": 10 * n, "seconds": 2.0 * n, "loss": loss}
            for n, loss in enumerate(losses, 1)
        ],
    )
    return plotting.Run(folder, {})


def test_speed_is_to_the_best_of_the_rival(tmp_path):
    claim = verdicts.Claim("faster", "layer", "batch", LOSS, value=4)
    groups = {
        ("batch", 128): [],
        ("batch", 4): [
            _run(tmp_path / "a", [3.0, 2.0, 2.5, 1.0]),
            _run(tmp_path / "b", [3.0, 1.5, 2.0, 2.0]),
            _run(tmp_path / "c", [3.0, 2.0, 1.5, 1.0]),
        ],
        ("layer", None): [
            _run(tmp_path / "d", [0.9, 3.0, 3.0, 3.0]),
            _run(tmp_path / "e", [1.5, 1.0, 1.0, 1.0]),
            _run(tmp_path / "f", [3.0, 2.0, 1.5, 1.2]),
        ],
    }
    updates, seconds = verdicts.judge(claim, groups)
    # 10 - 40, 10 - 20, and one evaluation too late: 50 - 40.
    assert updates["mean difference"] == pytest.approx(-10)
    assert seconds["mean difference"] == pytest.approx(-2)
    assert updates["never there"] == seconds["never there"] == 1
    assert updates["verdict"] == "undecided"
    assert -30 <= updates["from"] < -10 < updates["to"] <= 10


@pytest.mark.parametrize("name", tune.EXPERIMENTS)
def test_claims_are_of_what_a_comparison_runs(name):
    experiment = importlib.import_module(name).EXPERIMENT
    procedure = importlib.import_module(f"{name}_task").PROCEDURE
    values = [None, *(v for own in experiment.compared.values() for v in own)]
    assert procedure.claims
    for claim in procedure.claims:
        assert {claim.kind, claim.rival} <= {*experiment.kinds}
        assert claim.value in values
        assert (claim.panel is None) != (claim.metric is None)
        if experiment.compared and not experiment.without_gain:
            assert claim.value is not None
        if claim.metric:
            assert claim.metric in procedure.columns.values()


def test_a_claim_of_a_kind_that_was_not_run_has_no_row():
    claim = verdicts.Claim("better", "layer", "none", metric="nll")
    assert verdicts.judge(claim, {("none",): _runs(1.0)}) == []
