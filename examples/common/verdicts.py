"""Whether runs agree with a claim of the paper, by rule.

Kind and rival are compared seed by seed. The 95 % interval of the mean
difference is SciPy's bootstrap. With few seeds it is a little too narrow, so
`undecided` can be relied on. A difference below zero supports the claim.
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from common import plotting

# With fewer nothing is decided.
LEAST_SEEDS = 3


@dataclasses.dataclass(frozen=True)
class Claim:
    """What the paper says of two kinds.

    Attributes:
        text: the claim, in a few words.
        kind: the kind that is said to be better.
        rival: the kind that it is compared with.
        panel: a quantity that falls: the claim is that of speed, to the best
            that the rival reaches.
        metric: a key of the metrics, lower for the better: the claim is that
            of the end. Either this or `panel` is given.
        value: where a comparison varies a flag, the value that is meant.
    """

    text: str
    kind: str
    rival: str
    panel: plotting.Panel | None = None
    metric: str | None = None
    value: Any = None


def judge(
    claim: Claim, groups: Mapping[tuple, Sequence[plotting.Run]]
) -> list[dict[str, Any]]:
    """The rows of `verdicts.csv` for a claim; none without both kinds.

    Args:
        claim: the claim.
        groups: from (kind,) or (kind, value) to the runs of several seeds,
            the same of all kinds. The value None stands for any.
    """
    runs, rival = (
        _find(groups, k, claim.value) for k in (claim.kind, claim.rival)
    )
    if not runs or not rival:
        return []
    if claim.panel is None:
        axes = {claim.metric: None}
    else:
        axes = {"updates": "updates", "seconds": "seconds"}
    rows = []
    for name, axis in axes.items():
        pairs = list(zip(runs, rival, strict=True))
        finished = [
            p for p in pairs if None not in (p[0].metrics, p[1].metrics)
        ]
        if axis is None:
            late = 0
            found = [a.metrics[name] - b.metrics[name] for a, b in finished]
        else:
            times = [_times(a, b, claim.panel, axis) for a, b in finished]
            late = sum(never for *_, never in times)
            found = [own - other for own, other, _ in times]
        low, high = interval(found)
        rows.append(
            {
                "claim": claim.text,
                "measure": name if axis is None else f"{name} to its best",
                "kind": claim.kind,
                "rival": claim.rival,
                "mean difference": statistics.fmean(found) if found else "",
                "from": "" if low is None else low,
                "to": "" if high is None else high,
                "seeds": len(pairs),
                "diverged": len(pairs) - len(finished),
                "never there": late,
                "verdict": verdict(low, high)
                if len(finished) == len(pairs)
                else "undecided",
            }
        )
    return rows


def interval(
    differences: Sequence[float],
) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean; (None, None) of too few seeds."""
    if len(differences) < LEAST_SEEDS:
        return None, None
    if max(differences) == min(differences):  # Nothing to draw from.
        return float(differences[0]), float(differences[0])
    found = stats.bootstrap(
        (differences,), np.mean, random_state=np.random.default_rng(0)
    ).confidence_interval
    return float(found.low), float(found.high)


def verdict(low: float | None, high: float | None) -> str:
    """`agrees`, `disagrees` or, with zero in the interval, `undecided`."""
    if low is None or high is None or not (high < 0 or low > 0):
        return "undecided"
    return "agrees" if high < 0 else "disagrees"


def _find(groups, kind, value):
    for label, runs in groups.items():
        if label[0] == kind and (value is None or label[1] in (value, None)):
            return runs
    return None


def _times(run, other, panel, axis) -> tuple[float, float, bool]:
    """When each reaches the rival's best, and whether the first never does.

    If it never does, it counts as one evaluation after the end of its run.
    """
    goal = min(map(panel.value, other.rows))
    times = []
    for rows in (run.rows, other.rows):
        there = (row[axis] for row in rows if panel.value(row) <= goal)
        times.append(next(there, None))
    own, rival = times
    if own is None:
        own = run.rows[-1][axis] * (1 + 1 / len(run.rows))
    return own, rival, times[0] is None
