"""What the runs of a script say: a table, a figure and one plain sentence."""

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import files, flags

# Fewer seeds decide nothing.
LEAST_SEEDS = 3
# Runs by their values of the flags that a comparison varies, without the seed.
Groups = dict[tuple, list["Result"]]


class Panel(NamedTuple):
    """A quantity over the course of training; less is better.

    Attributes:
        label: its name and unit.
        value: the name of its column in `history.csv`, or a function of a row.
        log: whether its axis is logarithmic.
    """

    label: str
    value: str | Callable[[Mapping[str, float]], float]
    log: bool = False

    def of(self, row: Mapping[str, float]) -> float:
        """The quantity in a row of the history."""
        return self.value(row) if callable(self.value) else row[self.value]


class Result(NamedTuple):
    """A run: its metrics, None if it diverged, and its history."""

    metrics: Mapping[str, float] | None
    rows: Sequence[Mapping[str, float]]


def draw(
    args: Namespace,
    panels: Sequence[Panel],
    columns: Mapping[str, str],
    title: str,
    race: Panel | None = None,
    progress: str = "epoch",
) -> int:
    """Prints and draws the results of all runs of a script.

    Args:
        args: the flags, of `flags.parse`.
        panels: the curves to draw.
        columns: the headings of the table and the names of the metrics; the
            sentence is about the first one that is no training metric.
        title: the data, for the figure.
        race: if given, the table has the updates that each kind takes to the
            best value that the first kind reaches.
        progress: the x axis, "epoch" or "updates".

    Returns:
        The exit code: 1 if a run diverged.
    """
    from common import plotting, runs

    names = [name for name in args.varied if name != "seed"]
    groups: Groups = {}
    for plan in flags.plans(args):
        folder = runs.folder_of(args, plan)
        result = Result(runs.metrics_of(folder), runs.history_of(folder))
        label = tuple(getattr(plan, name) for name in names)
        groups.setdefault(label, []).append(result)
        curves = folder / "curves.png"
        if result.metrics is not None and not curves.exists():
            one = {(plan.norm,): [result]}
            plotting.comparison(one, [], panels, curves, progress, title)
    lost = sum(r.metrics is None for own in groups.values() for r in own)
    rows = _rows(args, names, groups, columns, race)
    print(table(rows))
    if not args.compare:
        print(f"The results are in {args.folder}.")
        return int(lost > 0)
    files.write_csv(args.folder / "comparison.csv", rows)
    figure = args.folder / "comparison.png"
    sizes = f"{title}\n{args.units} units, {args.epochs} epochs"
    plotting.comparison(groups, names[1:2], panels, figure, progress, sizes)
    print(sentence(args, groups, columns))
    print(f"The picture to open, with the table beside it:\n{figure}")
    return int(lost > 0)


def _rows(
    args: Namespace,
    names: Sequence[str],
    groups: Groups,
    columns: Mapping[str, str],
    race: Panel | None,
) -> list[dict[str, Any]]:
    rows = []
    first = next(iter(groups))[0]
    for label, results in groups.items():
        row = {
            name.replace("_", " "): "" if value is None else value
            for name, value in zip(names, label, strict=True)
        }
        for heading, key in columns.items():
            row[heading] = _cell(results, key)
        if race is not None and args.compare:
            # A kind without a gain has the value None for all of them.
            rival = next(
                own
                for (kind, *values), own in groups.items()
                if kind == first
                and all(map(lambda a, b: a in (b, None), values, label[1:]))
            )
            heading = f"updates to the best {race.label} of {first}"
            row[heading] = _race(results, rival, race)
        rows.append(row)
    return rows


def _cell(results: Sequence[Result], key: str) -> str:
    """A number, or mean and deviation over seeds."""
    lost = sum(result.metrics is None for result in results)
    if lost:
        return f"diverged ({lost})"
    return _mean([result.metrics[key] for result in results])


def _mean(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.4g}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.2g}"


def _race(
    results: Sequence[Result], rivals: Sequence[Result], panel: Panel
) -> str:
    """The mean number of updates until a run falls to its rival's best."""
    if any(r.metrics is None for r in (*results, *rivals)):
        return "diverged"
    found = []
    for result, rival in zip(results, rivals, strict=True):
        goal = min(map(panel.of, rival.rows))
        there = (r["updates"] for r in result.rows if panel.of(r) <= goal)
        found.append(next(there, None))
    late = found.count(None)
    return f"not reached ({late} of {len(found)})" if late else _mean(found)


def sentence(
    args: Namespace, groups: Groups, columns: Mapping[str, str]
) -> str:
    """The result of a comparison in words.

    The first kind is compared with every other kind, seed by seed: the mean
    difference has an interval of Student's t.
    """
    heading, key = next(
        (h, k) for h, k in columns.items() if not k.startswith("train")
    )
    meaning = ", a negative log-likelihood" * ("NLL" in heading)
    names = [n for n in args.varied if n not in ("norm", "seed")]
    diverged = any(r.metrics is None for own in groups.values() for r in own)
    seeds = args.varied["seed"]
    parts = []
    for values in dict.fromkeys(label[1:] for label in groups):
        own = {k[0]: v for k, v in groups.items() if k[1:] == values}
        where = " ".join(
            f"{name.replace('_', ' ')} {value}: "
            for name, value in zip(names, values, strict=True)
            if value is not None
        )
        first, *others = own
        found = [f"{name} {_cell(own[name], key)}" for name in own]
        for other in others if len(seeds) >= LEAST_SEEDS else ():
            pair = (*own[other], *own[first])
            if all(r.metrics is not None for r in pair):
                found.append(_difference(f"{other} minus {first}", pair, key))
        parts.append(where + ", ".join(found))
    text = (
        f"With {len(seeds)} seed{'s' * (len(seeds) > 1)} the {heading} (less "
        f"is better{meaning}) ends at: {'; '.join(parts)}."
    )
    if diverged:
        return f"{text} A smaller --learning-rate may help where it diverged."
    if len(seeds) < LEAST_SEEDS and not args.smoke:
        more = range(max(seeds) + 1, max(seeds) + 1 + LEAST_SEEDS - len(seeds))
        text += (
            " This cannot be told from chance; for intervals add this to the "
            f"command:\n--seed {' '.join(map(str, [*seeds, *more]))} --resume"
        )
    return text


def _difference(what: str, pair: Sequence[Result], key: str) -> str:
    """The difference of the two halves of `pair`, seed by seed."""
    from scipy import stats

    values = [result.metrics[key] for result in pair]
    half = len(values) // 2
    test = stats.ttest_rel(values[:half], values[half:])
    low, high = test.confidence_interval(0.95)
    mean = statistics.fmean(values[:half]) - statistics.fmean(values[half:])
    return f"{what} {mean:.2g} (95 % interval {low:.2g} to {high:.2g})"


def source(data: str, **names: str) -> str:
    """What --data names, for a title."""
    return names.get(data, Path(data).name)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys in Markdown's notation."""
    cells = [[*rows[0]], *([*map(_text, row.values())] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def show_and_write(
    path: Path, heading: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Prints a table and writes it as CSV."""
    named = [dict(zip(heading, row, strict=True)) for row in rows]
    print(table(named))
    files.write_csv(path, named)


def _text(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
