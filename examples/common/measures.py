"""A run, its measures (lower is better), and claims about them."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import files
from common.errors import InputError


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
    """One folder of a comparison; `metrics` is None if the run diverged."""

    folder: Path
    metrics: Mapping[str, float] | None

    @property
    def rows(self) -> list[dict[str, float]]:
        """The rows of `history.csv`."""
        path = self.folder / "history.csv"
        return files.read_csv(path) if path.exists() else []

    def check(self) -> None:
        """Refuses files that a finished run did not leave so."""
        if not isinstance(self.metrics, dict) or "updates" not in self.metrics:
            raise InputError(f"{self.folder / 'metrics.json'} is damaged")
        rows = self.rows
        if (
            not rows
            or any(row.keys() != rows[0].keys() for row in rows)
            or rows[-1].get("updates") != self.metrics["updates"]
        ):
            raise InputError(f"{self.folder / 'history.csv'} is damaged")


# The smallest NLL of an example that float32 tells from 0: the distance of its
# numbers next to 1.
RESOLUTION = 2.0**-24


@dataclasses.dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        label: the name and unit of the number.
        of: from the run to the number.
    """

    label: str
    of: Callable[[Run], float]
    # The key, if it is a metric: some data lack the metric.
    metric: str | None = None


def mean(key: str, label: str, log: bool = False, sign: float = 1) -> Measure:
    """The speed: a column of the history, over all evaluations of the run.

    With `log`, an NLL below `RESOLUTION`, such as 0, counts as `RESOLUTION`.
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
    """The claim that the first of two groups of runs is better.

    Attributes:
        text: the claim, in twelve words at most.
        kind: the kind that should be better.
        rival: the other kind.
        measure: the measure that the claim is about.
        value: the value of the flag that a comparison varies, if it does.
        rival_value: the value of the flag for the rival, if it differs.
        base: if given, the claim is about the change from this value of the
            flag to `value`.
        margin: if given, the claim is that the two are equivalent: no further
            apart than this.
        primary: the claim gets a verdict.
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
    """The claims of an experiment.

    Attributes:
        claims: the claims, primary ones first.
        held_out: the measure to watch: a key of the history, its name and
            unit.
        thresholds: the values of this measure to which updates are counted.
        seeds: the number of seeds.
        good: if given, the value of this measure that good settings reach.
        first_seed: the first seed; no result of any seed was known.
        earlier: the claims of runs from before `--decay`, if other claims are
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
        """The claims made before the runs with these flags."""
        return self.claims if "decay" in args else self.earlier or self.claims
