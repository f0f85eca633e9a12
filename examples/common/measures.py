"""What is measured of a run: one number, the lower the better."""

import dataclasses
import math
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.plotting import Run


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
    of: Callable[["Run"], float]


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
    return Measure(f"{label} at the end", lambda run: run.metrics[key])


def first_updates(run: "Run", key: str, threshold: float) -> float | None:
    """The updates until a column of the history falls to a threshold."""
    there = (row["updates"] for row in run.rows if row[key] <= threshold)
    return next(there, None)
