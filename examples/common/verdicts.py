"""Rules to judge whether runs agree with a claim of the paper.

Kind and rival are compared seed by seed: the mean difference has an interval
and a p value of Student's t; Holm's method corrects the p values over the
primary claims of an experiment. Intervals are not corrected. A
difference below zero supports the claim.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from common.measures import Claim, Run

# Fewer seeds decide nothing.
LEAST_SEEDS = 3
LEVEL = 0.05
CAPTION = (
    "mean differences, paired by seed, with 95 % intervals of Student's t, "
    "which are not corrected; verdicts follow p values that Holm's method "
    "corrects over the primary claims"
)


def summary(
    differences: Any, margin: float | None = None
) -> tuple[Any, Any, Any, Any]:
    """Mean, both ends of its interval and p value, over the last axis.

    The p value tests the hypothesis of no difference. With a margin it is the
    smaller p value of two hypotheses: the means differ by at least `margin`
    (two one-sided tests), or by less. At most one hypothesis is true.

    Args:
        differences: (..., n).
        margin: if given, the largest difference that counts as equal.
    """
    found = np.asarray(differences, float)
    n = found.shape[-1]
    mean = found.mean(axis=-1)
    error = found.std(axis=-1, ddof=1) / np.sqrt(n)
    half = stats.t.ppf(1 - LEVEL / 2, n - 1) * error

    def above(distance):  # The probability of a mean so far above the truth.
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.nan_to_num(distance / error, posinf=np.inf, neginf=-np.inf)
        return stats.t.sf(t, n - 1)

    if margin is None:
        p = 2 * above(abs(mean))
    else:
        p = np.minimum(above(margin - abs(mean)), 2 * above(abs(mean) - margin))
    return mean, mean - half, mean + half, np.minimum(p, 1)


def corrected(p_values: Any) -> np.ndarray:
    """Holm's p values, over the last axis (..., claims)."""
    p = np.asarray(p_values, float)
    order = p.argsort(axis=-1)
    left = np.arange(p.shape[-1], 0, -1)
    steps = left * np.take_along_axis(p, order, axis=-1)
    steps = np.minimum(np.maximum.accumulate(steps, axis=-1), 1)
    return np.take_along_axis(steps, order.argsort(axis=-1), axis=-1)


def discovered(p_values: Any) -> np.ndarray:
    """Benjamini's and Hochberg's p values, over the last axis (..., pairs).

    For summaries of many comparisons: at most the share `LEVEL` of the pairs
    with p below `LEVEL` is expected to be false.
    """
    return stats.false_discovery_control(p_values, axis=-1)


def verdict(mean: float, p: float, margin: float | None = None) -> str:
    """`agrees`, `disagrees`, `equivalent` or, if p is large, `undecided`."""
    if not p < LEVEL:
        return "undecided"
    if margin is not None:
        return "equivalent" if abs(mean) < margin else "disagrees"
    return "agrees" if mean < 0 else "disagrees"


def judge(
    claims: Sequence[Claim], groups: Mapping[tuple, Sequence[Run]]
) -> list[dict[str, Any]]:
    """The rows of `verdicts.csv`; none for a claim about missing runs.

    Args:
        claims: the claims of one experiment.
        groups: from (kind,) or (kind, value) to the runs of several seeds,
            the same of all kinds. The value None stands for any.
    """
    found = [(c, d) for c in claims if (d := _differences(c, groups))]
    rows, tested = [], []
    for claim, differences in found:
        finished = [d for d in differences if d is not None]
        row = {
            "claim": claim.text,
            "measure": claim.measure.label,
            "margin": "" if claim.margin is None else claim.margin,
            **dict.fromkeys(("mean difference", "from", "to", "p"), ""),
            "mean of rival": _mean(claim, groups, 1),
            "seeds": len(differences),
            "diverged": len(differences) - len(finished),
            **dict.fromkeys(("corrected p", "verdict"), ""),
        }
        p = 1.0
        if len(finished) >= LEAST_SEEDS:
            numbers = [*map(float, summary(finished, claim.margin))]
            names = ("mean difference", "from", "to", "p")
            row |= dict(zip(names, numbers, strict=True))
            if not row["diverged"]:
                p = numbers[-1]
        elif finished:
            row["mean difference"] = float(np.mean(finished))
        rows.append(row)
        if claim.primary:
            tested.append((claim, row, p))
    holm = corrected([p for *_, p in tested]) if tested else []
    for (claim, row, _), p in zip(tested, holm, strict=True):
        row["corrected p"] = float(p)
        row["verdict"] = verdict(row["mean difference"], p, claim.margin)
    return rows


def _differences(
    claim: Claim, groups: Mapping[tuple, Sequence[Run]]
) -> list[float | None]:
    """Differences by seed, None for a diverged run; empty without the runs."""
    return [
        sum(
            sign * claim.measure.of(run)
            for sign, run in zip((1, -1, -1, 1), of_seed, strict=False)
        )
        if _finished(of_seed)
        else None
        for of_seed in _seeds(claim, groups)
    ]


def first_numbers(
    claims: Sequence[Claim], groups: Mapping[tuple, Sequence[Run]]
) -> tuple[Claim, float, float, int] | None:
    """The two means of the first claim that has them.

    Claims about a change or a margin are left out.

    Returns:
        The claim, the mean of its kind and the mean of its rival, and the
        number of seeds that both finished, which the means are over.
    """
    for claim in claims:
        own, rival = (_mean(claim, groups, term) for term in (0, 1))
        if claim.base is claim.margin is None and "" not in (own, rival):
            found = _seeds(claim, groups)
            return claim, own, rival, sum(map(_finished, found))
    return None


def _mean(claim, groups, term):
    """The mean of one term of the claim, over the seeds that count."""
    found = [
        claim.measure.of(of_seed[term])
        for of_seed in _seeds(claim, groups)
        if _finished(of_seed)
    ]
    return float(np.mean(found)) if found else ""


def _seeds(claim, groups):
    """The runs of every seed: kind, rival and, with a base, both at the base.

    They are empty if the runs are missing.
    """
    rival = claim.value if claim.rival_value is None else claim.rival_value
    terms = [(claim.kind, claim.value), (claim.rival, rival)]
    if claim.base is not None:
        terms += [(claim.kind, claim.base), (claim.rival, claim.base)]
    runs = [_find(groups, *term) for term in terms]
    if not all(found and _is_measured(claim, found) for found in runs):
        return []
    return [*zip(*runs, strict=True)]


def _finished(runs):
    return all(run.metrics is not None for run in runs)


def _is_measured(claim, runs):
    """Whether the data of the runs have the claim's metric."""
    wanted = claim.measure.metric
    return all(
        run.metrics is None or wanted is None or wanted in run.metrics
        for run in runs
    )


def _find(groups, kind, value):
    for label, runs in groups.items():
        # A kind without values of the flag has the value None.
        values = (None, *label[1:2], value if None in label else None)
        if label[0] == kind and value in values:
            return runs
    return None
