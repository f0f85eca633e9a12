"""A comparison: all kinds trained and set side by side.

Measurements and flags are in files; the table, the figures and the verdicts are
made only from these files, so that they can be made again.
"""

import math
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
    selection,
    single,
    tables,
    training,
    verdicts,
)
from common.errors import InputError
from common.experiment import Experiment
from common.measures import Run

RECORD, FIGURE = "comparison.json", "comparison.png"
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
    """Trains every plan in a separate folder and sets them side by side.

    All kinds run their first seed before any kind runs its second, and the
    finished runs are reported after each.

    Returns:
        The exit code: 1 if one diverged.
    """
    varied = grids.varied(experiment) if plans[0].tune else []
    record: dict[str, Any] = {
        "experiment": experiment.name,
        "title": single.title(
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
    seeds = dict.fromkeys(plan.seed for plan in plans)
    plans = [plan for seed in seeds for plan in plans if plan.seed == seed]
    names = [single.folder_name(experiment, plan, {}) for plan in plans]
    labels = [single.label_of(experiment, plan) for plan in plans]
    spent: dict[tuple, list[float]] = {}
    shown = ""
    for i, plan in enumerate(plans):
        own = folder / names[i]
        remaining = [
            label
            for name, label in zip(names[i:], labels[i:], strict=True)
            if not (folder / name / "metrics.json").exists()
        ]
        left = single.time_left(spent, remaining)
        print(f"[{i + 1}/{len(plans)}] {names[i]}{left}")
        start, whole = time.perf_counter(), not own.exists()
        single.open_folder(
            own, single.describe([plan], compare=False), resume=True
        )
        single.train_one(experiment, plan, data, own)
        if whole:
            seconds = time.perf_counter() - start
            spent.setdefault(labels[i], []).append(seconds)
        record["runs"].append(
            {
                "folder": names[i],
                "label": labels[i],
                "seed": plan.seed,
                **{key: vars(plan)[key] for key in varied},
            }
        )
        if all(other.seed != plan.seed for other in plans[i + 1 :]):
            files.write_json(folder / RECORD, record)
            shown = report(experiment, folder)
    print(shown)
    print(f"The picture to open, with the tables beside it:\n{folder / FIGURE}")
    groups = _groups(folder, record)
    return int(any(run.metrics is None for g in groups.values() for run in g))


def _floors(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """The floor that results have to beat, from `floors.json` if it exists.

    Returns:
        For chance, a trivial baseline, and the untrained models of the first
        seed: `label`, the cells of the first columns, and `metrics`.
    """
    path = folder / "floors.json"
    if path.exists():
        found = files.read_json(path)
        if not isinstance(found, list) or not all(
            isinstance(floor, dict) and floor.keys() == {"label", "metrics"}
            for floor in found
        ):
            raise InputError(f"{path} is damaged")
        return found
    found = [
        {"label": [name], "metrics": dict(metrics)}
        for name, metrics in experiment.floors(plans[0], data).items()
    ]
    for plan in (p for p in plans if p.seed == plans[0].seed):
        with training.environment(plan):
            metrics = dict(experiment.untrained(plan, data))
        keras.backend.clear_session()
        norm, *values = single.label_of(experiment, plan)
        label = [f"{norm}, untrained", *values]
        found.append({"label": label, "metrics": metrics})
    files.write_json(path, found)
    return found


def report(experiment: Experiment, folder: Path) -> str:
    """Writes table, figures and verdicts of the runs in `folder`.

    Returns:
        Table and verdicts, to be printed.
    """
    record = files.read_json(folder / RECORD)
    groups = _groups(folder, record)
    rows = _rows(experiment, folder, record, groups)
    files.write_csv(folder / "comparison.csv", rows)
    seeds = [*dict.fromkeys(run["seed"] for run in record["runs"])]
    title = f"{record['title']}, {_named(seeds)}"
    plotting.comparison(
        groups,
        [_spaced(name) for name in record["names"][1:2]],
        experiment.panels,
        folder / FIGURE,
        experiment.progress,
        title,
        [tuple(label) for label in record.get("edges", ())],
    )
    parts = [tables.of_rows(rows)]
    args = files.read_json(folder / "args.json")
    made = claims.OF[experiment.name].of_runs(args)
    judged = verdicts.judge(made, groups)
    if judged:
        files.write_csv(folder / "verdicts.csv", judged)
    if len(seeds) < verdicts.LEAST_SEEDS:
        parts += _too_few(experiment, record, groups, seeds, folder)
    elif judged:
        if "edges" not in record:
            parts.append(OF_OLD_RUNS)
        parts += [f"{verdicts.CAPTION}:", tables.of_rows(judged)]
    return "\n".join(parts)


def _named(seeds: Sequence[int]) -> str:
    numbers = ", ".join(map(str, seeds))
    if len(seeds) > 2 and [*seeds] == [*range(seeds[0], seeds[-1] + 1)]:
        numbers = f"{seeds[0]} to {seeds[-1]}"
    return f"seed{'s' * (len(seeds) > 1)} {numbers}"


def _too_few(
    experiment: Experiment,
    record: dict[str, Any],
    groups: dict[tuple, list[Run]],
    seeds: Sequence[int],
    folder: Path,
) -> list[str]:
    """The lines in place of verdicts: the training and its results."""
    names = map(_spaced, record["names"])
    values = (
        [*dict.fromkeys(v for v in column if v is not None)]
        for column in zip(*groups, strict=True)
    )
    kinds = "; ".join(
        f"{name} {', '.join(map(str, found))}"
        for name, found in zip(names, values, strict=True)
    )
    data, _, sizes = record["title"].partition("\n")
    count = len(record["runs"])
    lost = sum(run.metrics is None for g in groups.values() for run in g)
    divergence = f"; {'all' if lost == count else lost} of them diverged"
    trained = (
        f"{count} networks were trained ({kinds}) on {data}: "
        f"{sizes}, {_named(seeds)}{divergence * (lost > 0)}."
    )
    table = claims.OF[record["experiment"]]
    came_out = "The table has the results."
    found = verdicts.first_numbers(table.claims, groups)
    if found is not None:
        claim, own, rival, finished = found
        measure = claim.measure.label
        meaning = "negative log-likelihood; " * ("NLL" in measure)
        came_out = (
            f'For the first claim, "{claim.text}", the {measure} '
            f"({meaning}lower is better) was {own:.4g} for {claim.kind} and "
            f"{rival:.4g} for {claim.rival}"
            f"{', in the seed that both finished' * (finished < len(seeds))}."
        )
    if lost:
        advice = "Networks that diverge allow no verdict; "
        advice += "a smaller --learning-rate may help."
    elif files.read_json(folder / "args.json")["smoke"]:
        advice = "A run with --smoke only shows that everything works."
    else:
        more = _more(experiment, seeds, table.seeds, bool(record["varied"]))
        advice = (
            f"{'One seed' if len(seeds) == 1 else 'Two seeds'} cannot tell "
            "that from chance; for an interval and a verdict add this to the "
            f"command:\n--seed {' '.join(map(str, more))} --resume"
        )
    return [trained, f"{came_out} {advice}"]


def _more(
    experiment: Experiment, seeds: Sequence[int], count: int, tuned: bool
) -> list[int]:
    """So many seeds, which begin with `seeds` and may be used together."""
    found, seed = [*seeds], max(seeds)
    folds = experiment.folds or math.inf
    while len(found) < min(count, folds):
        seed += 1
        tests_the_same = any(seed % folds == other % folds for other in found)
        if not (tests_the_same or (tuned and seed in grids.SEEDS)):
            found.append(seed)
    return found


def _groups(folder: Path, record: dict[str, Any]) -> dict[tuple, list[Run]]:
    groups: dict[tuple, list[Run]] = {}
    for run in record["runs"]:
        own = files.inside(folder, run["folder"], folder / RECORD)
        result = own / "metrics.json"
        metrics = files.read_json(result) if result.exists() else None
        found = Run(own, metrics)
        if metrics is not None:
            found.check()
        groups.setdefault(tuple(run["label"]), []).append(found)
    return groups


def _rows(
    experiment: Experiment,
    folder: Path,
    record: dict[str, Any],
    groups: dict[tuple, list[Run]],
) -> list[dict[str, Any]]:
    """The table: the trained kinds, then the floors without training."""
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
    """The group with this label, in which None matches any value."""
    return next(
        own
        for label, own in groups.items()
        if all(
            part in (value, None)
            for part, value in zip(label, wanted, strict=True)
        )
    )
