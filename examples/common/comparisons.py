"""A comparison: all kinds trained and set side by side.

What was measured and what was asked for is in files; the table, the figures
and the verdicts are drawn from them alone, so that they can be drawn again.
"""

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from common import (
    claims,
    files,
    grids,
    plotting,
    runs,
    selection,
    tables,
    training,
    verdicts,
)
from common.experiment import Experiment
from common.measures import Run

RECORD = "comparison.json"
OF_OLD_RUNS = (
    "These runs are from before the protocol: small grids that did not grow, "
    "no part that\nchooses the end, which is the last evaluation, and batch "
    "statistics as they moved."
)


def train_all(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> int:
    """Trains every plan in a folder of its own and sets them side by side.

    All kinds get their first seed before any gets its second, and what is
    finished is reported after each.

    Returns:
        The exit code: 1 if one diverged.
    """
    varied = grids.varied(experiment) if plans[0].tune else []
    record: dict[str, Any] = {
        "experiment": experiment.name,
        "title": runs.title(
            experiment.describe(plans[0], data), plans[0], experiment.compared
        ),
        "names": ["norm", *experiment.compared],
        "varied": varied,
        "edges": [],
        "floors": [],
        "runs": [],
    }
    if varied:
        plans, edges = selection.choose(experiment, plans, data, folder)
        record["edges"] = [[*label] for label in edges]
    record["floors"] = _floors(experiment, plans, data, folder)
    spent: list[float] = []
    shown = ""
    for seed in dict.fromkeys(plan.seed for plan in plans):
        for plan in (plan for plan in plans if plan.seed == seed):
            name = runs.folder_name(experiment, plan, {})
            number = len(record["runs"]) + 1
            left = runs.time_left(spent, len(plans) - number + 1)
            print(f"[{number}/{len(plans)}] {name}{left}")
            own = folder / name
            start = time.perf_counter()
            finished = (own / "metrics.json").exists()
            runs.open_folder(
                own, runs.describe([plan], compare=False), resume=True
            )
            runs.train_one(experiment, plan, data, own)
            if not finished:
                spent.append(time.perf_counter() - start)
            record["runs"].append(
                {
                    "folder": name,
                    "label": runs.label_of(experiment, plan),
                    "seed": seed,
                    **{key: vars(plan)[key] for key in varied},
                }
            )
        files.write_json(folder / RECORD, record)
        shown = report(experiment, folder)
    print(shown)
    print(f"The table and the figures are in {folder}.")
    groups = _groups(folder, record)
    return int(any(run.metrics is None for g in groups.values() for run in g))


def _floors(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """What a result has to be better than, from `floors.json` if it is there.

    Returns:
        Of chance, a trivial baseline, and the models untrained, with the
        first seed: `label`, the cells of the first columns, and `metrics`.
    """
    path = folder / "floors.json"
    if path.exists():
        return files.read_json(path)
    found = [
        {"label": [name], "metrics": dict(metrics)}
        for name, metrics in experiment.floors(plans[0], data).items()
    ]
    for plan in (p for p in plans if p.seed == plans[0].seed):
        with training.environment(plan):
            metrics = dict(experiment.untrained(plan, data))
        keras.backend.clear_session()
        norm, *values = runs.label_of(experiment, plan)
        label = [f"{norm}, untrained", *values]
        found.append({"label": label, "metrics": metrics})
    files.write_json(path, found)
    return found


def report(experiment: Experiment, folder: Path) -> str:
    """Writes table, figures and verdicts of what `folder` holds.

    Returns:
        Table and verdicts, to be printed.
    """
    record = files.read_json(folder / RECORD)
    groups = _groups(folder, record)
    rows = _rows(experiment, folder, record, groups)
    files.write_csv(folder / "comparison.csv", rows)
    seeds = list(dict.fromkeys(run["seed"] for run in record["runs"]))
    numbers = ", ".join(map(str, seeds))
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        numbers = f"{seeds[0]} to {seeds[-1]}"
    title = f"{record['title']}, seed{'s' * (len(seeds) > 1)} {numbers}"
    plotting.comparison(
        groups,
        [_spaced(name) for name in record["names"][1:2]],
        experiment.panels,
        folder / "comparison.png",
        experiment.progress,
        title,
        [tuple(label) for label in record.get("edges", ())],
    )
    parts = [tables.of_rows(rows)]
    judged = verdicts.judge(claims.OF[experiment.name].claims, groups)
    if judged:
        files.write_csv(folder / "verdicts.csv", judged)
        if "edges" not in record:
            parts.append(OF_OLD_RUNS)
        parts += [f"{verdicts.CAPTION}:", tables.of_rows(judged)]
    return "\n".join(parts)


def _groups(folder: Path, record: dict[str, Any]) -> dict[tuple, list[Run]]:
    groups: dict[tuple, list[Run]] = {}
    for run in record["runs"]:
        own = files.inside(folder, run["folder"], folder / RECORD)
        result = own / "metrics.json"
        metrics = files.read_json(result) if result.exists() else None
        label = tuple(run["label"])
        groups.setdefault(label, []).append(Run(own, metrics))
    return groups


def _rows(
    experiment: Experiment,
    folder: Path,
    record: dict[str, Any],
    groups: dict[tuple, list[Run]],
) -> list[dict[str, Any]]:
    """The table: what was trained, then what it takes no training to reach."""
    names, varied = record["names"], record["varied"]
    columns = experiment.columns
    rows: list[dict[str, Any]] = []
    for label, runs_of_label in groups.items():
        settings = next(r for r in record["runs"] if tuple(r["label"]) == label)
        row = dict(zip(map(_spaced, names), label, strict=True))
        row |= {_spaced(name): settings[name] for name in varied}
        if varied:
            edge = list(label) in record.get("edges", ())
            row["grid"] = selection.EDGE if edge else ""
        cells = tables.summary(runs_of_label, columns.values())
        row |= dict(zip(columns, cells, strict=True))
        table = claims.OF[experiment.name]
        key, name = table.held_out
        if varied and table.good is not None:
            row[f"settings that reach {table.good:g}"] = selection.good(
                experiment, folder, label, table.good
            )
        for threshold in table.thresholds:
            row[f"updates to a {name} of {threshold:g}"] = tables.to_threshold(
                runs_of_label, key, threshold
            )
        if experiment.race is not None:
            first = experiment.kinds[0]
            rival = _rival(groups, (first, *label[1:]))
            row[f"updates to the {experiment.race.label} of {first}"] = (
                tables.race(runs_of_label, rival, experiment.race)
            )
        rows.append(row)
    for floor in record["floors"]:
        row = dict(zip(map(_spaced, names), floor["label"], strict=False))
        for heading, key in columns.items():
            if key in floor["metrics"]:
                row[heading] = f"{floor['metrics'][key]:.4g}"
        rows.append(row)
    heading = list(rows[0])
    return [
        {key: "" if row.get(key) is None else row[key] for key in heading}
        for row in rows
    ]


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _rival(groups: dict[tuple, Any], wanted: tuple) -> Any:
    """The group of that label, where None stands for any value."""
    return next(
        own
        for label, own in groups.items()
        if all(
            part in (value, None)
            for part, value in zip(label, wanted, strict=True)
        )
    )
