"""The first step of `--compare --tune`: a grid for every kind."""

import functools
import math
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import files, grids, single, tables
from common.errors import InputError
from common.experiment import Experiment
from common.measures import Panel, Run

FOLDER = "grid"
# The values of `chosen` for a point inside of its grid, or on its edge.
INSIDE, EDGE = "yes", "on the edge"
# The column of the runs, with both seeds, that have the comparison's length.
FULL = "at full length"


def choose(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> tuple[list[Namespace], list[tuple]]:
    """Runs or continues the grids, and writes `tuning.csv`.

    If this table exists, the grids are finished, and it is read.

    Returns:
        The plans, each with the best flags for its kind, and the labels whose
        best point lies on the edge of the grid.
    """
    table = folder / "tuning.csv"
    if not table.exists():
        rows = _grids(experiment, plans, data, folder)
        files.write_csv(table, rows)
        print(tables.of_rows(rows))
    names = ("norm", *experiment.compared)
    try:
        chosen = {
            tuple(row[name] for name in names): row
            for row in files.read_table(table)
            if row["chosen"]
        }
        found, edges = [], []
        for plan in plans:
            label = single.label_of(experiment, plan)
            row = chosen[tuple(map(files.cell, label))]
            names_of_point = grids.varied(experiment)
            point = {n: _value(n, row.get(n)) for n in names_of_point}
            found.append(Namespace(**vars(plan) | point))
            if row["chosen"] == EDGE:
                edges.append(label)
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{table} was not written by --tune ({error!r}); remove it "
            "to continue the grid"
        ) from error
    return found, [*dict.fromkeys(edges)]


def _grids(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """Runs all unfinished points; returns the rows of `tuning.csv`."""
    held_out = data.held_out()
    names = ("norm", *experiment.compared)
    kinds = {single.label_of(experiment, plan): plan for plan in plans}
    rows = []
    for number, (label, plan) in enumerate(kinds.items(), 1):
        began = time.perf_counter()

        def score(point, seed, plan=plan, number=number, **longer):
            setting = grids.settings(experiment, plan, point) | longer
            run = grids.run_of(plan, seed, setting)
            name = single.folder_name(experiment, run, setting)
            print(f"[grid {number}/{len(kinds)}] {name}")
            own = folder / FOLDER / name
            record = single.describe([run], compare=False)
            single.open_folder(own, record, resume=True)
            metrics = single.train_one(experiment, run, held_out, own)
            return _score(Run(own, metrics), experiment.criterion)

        first = grids.start(experiment, plan.norm)
        shorter = grids.epochs(plan) < plan.epochs
        whole = functools.partial(score, epochs=plan.epochs)
        best, scores, finals = grids.search(
            first, score, whole if shorter else None
        )
        minutes = (time.perf_counter() - began) / 60
        print(f"[grid {number}/{len(kinds)}] {minutes:.0f} min")
        chosen = EDGE if grids.is_on_edge(best, scores) else INSIDE
        for point in sorted(scores):
            found, full = scores[point], finals.get(point)
            values = grids.settings(experiment, plan, point)
            rows.append(
                {
                    **dict(zip(names, label, strict=True)),
                    **{
                        name: files.cell(values.get(name))
                        for name in grids.varied(experiment)
                    },
                    experiment.criterion.label: sum(found) / len(found),
                    "seeds": len(found),
                    FULL: sum(full) / len(full) if full else "",
                    "chosen": chosen if point == best else "",
                }
            )
    return rows


def good(
    experiment: Experiment,
    folder: Path,
    label: Sequence[Any],
    limit: float,
) -> str:
    """The number of the first points of a kind's grid that are good enough.

    It does not use the finals, which have more epochs.

    Args:
        folder: the folder of the comparison.
        label: the kind, and the values of the compared flags.
        limit: the loss that good points reach.
    """
    kept = {"forget_steps": None} | files.read_json(folder / "args.json")
    plan = Namespace(**kept | {"norm": label[0]})
    rows = files.read_table(folder / "tuning.csv")
    # Grids from before --forget-steps do not have that column.
    first = {
        tuple((n, v) for n, v in setting.items() if n in rows[0])
        for setting in (
            grids.settings(experiment, plan, point)
            for point in grids.start(experiment, plan.norm)
        )
    }
    varied = [name for name, _ in next(iter(first))]
    names = ("norm", *experiment.compared)
    losses = [
        float(row[experiment.criterion.label])
        for row in rows
        if [row[name] for name in names] == [*map(files.cell, label)]
        and tuple((n, _value(n, row[n])) for n in varied) in first
    ]
    return f"{sum(loss <= limit for loss in losses)} of {len(first)}"


def _value(name: str, cell: str | None) -> float | None:
    """A setting, from its cell of the table."""
    if not cell:
        return None
    return int(cell) if name == "forget_steps" else float(cell)


def _score(run: Run, criterion: Panel) -> float:
    """The least value of the run, infinite if it diverged."""
    if run.metrics is None:
        return math.inf
    score = min(map(criterion.value, run.rows))
    return score if math.isfinite(score) else math.inf
