"""What `--compare --tune` does first: a small grid for every kind."""

import math
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import files, grids, plotting, runs, tables
from common.errors import InputError

if TYPE_CHECKING:
    from common.cli import Experiment

FOLDER = "grid"


def check(
    experiment: "Experiment",
    procedure: runs.Procedure,
    plans: Sequence[Namespace],
    data: Any,
) -> None:
    """Refuses what the smaller training part does not allow."""
    held_out = procedure.held_out(data)
    for plan in _one_of_each(experiment, plans).values():
        run = grids.run_of(plan, grids.points(experiment, plan)[0])
        try:
            procedure.check(run, held_out)
        except InputError as error:
            raise InputError(f"--tune: {error}") from error


def choose(
    experiment: "Experiment",
    procedure: runs.Procedure,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[Namespace]:
    """Runs the grids, or goes on with them, and writes `tuning.csv`.

    Where that table is there, the grids are finished, and it is read.

    Returns:
        The plans, each with what was best for its kind.
    """
    table = folder / "tuning.csv"
    if not table.exists():
        rows = _grids(experiment, procedure, plans, data, folder)
        files.write_csv(table, rows)
        print(tables.of_rows(rows))
    names = ("norm", *experiment.compared)
    try:
        winners = {
            tuple(row[name] for name in names): {
                name: float(row[name])
                for name in grids.varied(experiment)
                if row[name]
            }
            for row in files.read_table(table)
            if row["chosen"]
        }
        found = [
            winners[tuple(files.cell(vars(plan)[name]) for name in names)]
            for plan in plans
        ]
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{table} is not what --tune has written ({error!r}); remove it "
            "to go on with the grid"
        ) from error
    return [
        Namespace(**vars(plan) | point)
        for plan, point in zip(plans, found, strict=True)
    ]


def _grids(
    experiment: "Experiment",
    procedure: runs.Procedure,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """Runs every point that is not finished; a row of `tuning.csv` for each."""
    held_out = procedure.held_out(data)
    grid = [
        (label, plan, point)
        for label, plan in _one_of_each(experiment, plans).items()
        for point in grids.points(experiment, plan)
    ]
    scores: dict[tuple, list[float]] = {}
    spent: list[float] = []
    for number, (label, plan, point) in enumerate(grid, 1):
        run = grids.run_of(plan, point)
        name = runs.folder_name(experiment, run, point)
        left = runs.time_left(spent, len(grid) - number + 1)
        print(f"[grid {number}/{len(grid)}] {name}{left}")
        own = folder / FOLDER / name
        start, finished = time.perf_counter(), (own / "metrics.json").exists()
        runs.open_folder(own, runs.describe([run], compare=False), resume=True)
        metrics = runs.train_one(experiment, procedure, run, held_out, own)
        if not finished:
            spent.append(time.perf_counter() - start)
        found = plotting.Run(own, metrics)
        scores.setdefault(label, []).append(_score(found, procedure.criterion))
    winners = {label: _least(own) for label, own in scores.items()}
    return [
        {
            **dict(zip(("norm", *experiment.compared), label, strict=True)),
            **{name: point.get(name, "") for name in grids.varied(experiment)},
            procedure.criterion.label: score,
            "chosen": "yes" if place == winners[label] else "",
        }
        for (label, _, point), (place, score) in zip(
            grid,
            (pair for own in scores.values() for pair in enumerate(own)),
            strict=True,
        )
    ]


def _one_of_each(
    experiment: "Experiment", plans: Sequence[Namespace]
) -> dict[tuple, Namespace]:
    """A plan of every label, whatever its seed."""
    found: dict[tuple, Namespace] = {}
    for plan in plans:
        found.setdefault(runs.label_of(experiment, plan), plan)
    return found


def _score(run: plotting.Run, criterion: plotting.Panel) -> float:
    """The last value, infinite for a run that diverged."""
    if run.metrics is None:
        return math.inf
    score = criterion.value(run.rows[-1])
    return score if math.isfinite(score) else math.inf


def _least(scores: Sequence[float]) -> int:
    """The place of the least; where all diverged, the middle of the grid."""
    middle = len(scores) // 2
    return min(range(len(scores)), key=lambda i: (scores[i], abs(i - middle)))
