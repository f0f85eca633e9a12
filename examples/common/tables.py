"""Tables of runs, in numbers and in words."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import files, measures
from common.measures import Panel, Run


def summary(runs: Sequence[Run], keys: Iterable[str]) -> list[str]:
    """One metric per key: a number, or mean and deviation over seeds."""
    finished = [run.metrics for run in runs if run.metrics is not None]
    if len(finished) < len(runs):
        return [f"diverged ({len(runs) - len(finished)})" for _ in keys]
    cells = []
    for key in keys:
        values = [metrics[key] for metrics in finished]
        mean = statistics.fmean(values)
        cells.append(
            f"{mean:.4g}"
            if len(values) == 1
            else f"{mean:.4g} ± {statistics.stdev(values):.2g}"
        )
    return cells


def race(runs: Sequence[Run], rival: Sequence[Run], panel: Panel) -> str:
    """The updates until `panel` falls to the best that a rival reaches.

    Both are judged by their best so far: a single bad evaluation does not
    lower the goal, and a goal that was reached stays reached.

    Args:
        runs: several seeds of one kind.
        rival: the same seeds of another kind; each run sets the goal for its
            seed.
        panel: the quantity.

    Returns:
        The mean over the seeds, with the deviation; or the number of seeds
        that did not reach the goal, if any.
    """
    if any(run.metrics is None for run in (*runs, *rival)):
        return "diverged"
    updates = []
    for run, other in zip(runs, rival, strict=True):
        goal = min(map(panel.value, other.rows))
        there = (r["updates"] for r in run.rows if panel.value(r) <= goal)
        updates.append(next(there, None))
    return _of_updates(updates)


def to_threshold(runs: Sequence[Run], key: str, threshold: float) -> str:
    """The updates until a column of the history falls to a threshold."""
    return _of_updates(
        [measures.first_updates(run, key, threshold) for run in runs]
    )


def _of_updates(updates: Sequence[float | None]) -> str:
    late = updates.count(None)
    if late:
        return f"not reached ({late} of {len(updates)})"
    (cell,) = summary(
        [Run(Path(), {"updates": value}) for value in updates], ["updates"]
    )
    return cell


def table(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligns a table in Markdown's notation, ready for a README."""
    cells = [[*heading], *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """`table` of rows that all have the keys of the first."""
    return table([*rows[0]], [[*row.values()] for row in rows])


def show_and_write(
    path: Path, heading: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Prints a table of a study and writes it as CSV."""
    print(table(heading, rows))
    files.write_csv(path, [dict(zip(heading, r, strict=True)) for r in rows])


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
