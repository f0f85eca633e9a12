"""A run, what is measured of it, the lower the better, and what is claimed."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import files


@dataclasses.dataclass(frozen=True)
class Panel:
    """One quantity over the course of training.

    Attributes:
        label: the name and unit on the axis.
        value: from a row of `history.csv` to the quantity.
        log: whether the axis is logarithmic.
    """

    label: str
    value: Callable[[Mapping[str, float]], float]
    log: bool = False


EPOCHS = Panel("epoch", lambda row: row["epoch"])
VALIDATION = Panel("held-out loss", lambda row: row["val_loss"])
UPDATES = Panel("training steps (thousands)", lambda row: row["updates"] / 1000)


@dataclasses.dataclass(frozen=True)
class Run:
    """One folder of a comparison; `metrics` is None where it diverged."""

    folder: Path
    metrics: Mapping[str, float] | None

    @property
    def rows(self) -> list[dict[str, float]]:
        """The rows of `history.csv`."""
        path = self.folder / "history.csv"
        return files.read_csv(path) if path.exists() else []


# The smallest NLL of an example that float32 tells from 0: next to 1 its
# numbers are this far apart.
RESOLUTION = 2.0**-24


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        label: its name and unit.
        of: from the run to the number.
    """

    label: str
    of: Callable[[Run], float]
    # The metric that it is, where it is one: some data have no such metric.
    metric: str | None = None


def mean(key: str, label: str, log: bool = False, sign: float = 1) -> Measure:
    """The speed: a column of the history, over all evaluations of the run.

    With `log`, an NLL below `RESOLUTION`, such as 0, counts as that.
    """

    def of(run):
        values = [sign * row[key] for row in run.rows]
        if log:
            values = [math.log10(max(value, RESOLUTION)) for value in values]
        return statistics.fmean(values)

    return Measure(f"mean {'log10 of the ' * log}{label}", of)


def end(key: str, label: str) -> Measure:
    """The end: a metric, at the evaluation that the validation part chose."""
    return Measure(f"{label} at the end", lambda run: run.metrics[key], key)


def first_updates(run: Run, key: str, threshold: float) -> float | None:
    """The updates until a column of the history falls to a threshold."""
    there = (row["updates"] for row in run.rows if row[key] <= threshold)
    return next(there, None)


Value = str | float | None


@dataclasses.dataclass(frozen=True)
class Claim:
    """Two groups of runs, of which the first is said to be better.

    Attributes:
        text: the claim, in twelve words at most.
        kind: the kind that is said to be better.
        rival: the kind that it is compared with.
        measure: what of.
        value: where a comparison varies a flag, the value that is meant.
        rival_value: the value of the rival, if it is another one.
        base: where given, the claim is about the change from this value of
            the flag to `value`.
        margin: where given, the claim is that the two are the same: no
            further apart than this.
        primary: whether there is a verdict.
    """

    text: str
    kind: str
    rival: str
    measure: Measure
    value: Value = None
    rival_value: Value = None
    base: Value = None
    margin: float | None = None
    primary: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """What is judged in an experiment.

    Attributes:
        claims: the claims, primary ones first.
        held_out: the measure whose course is watched: a key of the history,
            its name and unit.
        thresholds: the values of it to which updates are counted.
        seeds: how many there are.
        good: where given, the value of it that good settings of a grid reach.
        first_seed: the first of them, none of whose results was known.
        earlier: the claims of runs from before `--decay`, where others are
            primary now.
    """

    claims: Sequence[Claim]
    held_out: tuple[str, str]
    thresholds: Sequence[float]
    seeds: int = 10
    good: float | None = None
    first_seed: int = 100
    earlier: Sequence[Claim] = ()

    def of_runs(self, args: Mapping[str, Any]) -> Sequence[Claim]:
        """The claims that were made before the runs of these flags."""
        return self.claims if "decay" in args else self.earlier or self.claims
