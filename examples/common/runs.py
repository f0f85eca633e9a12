"""A run or a comparison of runs, from an empty folder to its figure."""

import dataclasses
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from common import callbacks, files, plotting, tables, training, verdicts
from common.errors import InputError, NonFiniteLossError

if TYPE_CHECKING:
    from common.cli import Experiment

# They say where and how to run, not what the result is.
_NOT_RECORDED = ("compare", "output_dir", "resume", "tensorboard")


@dataclasses.dataclass(frozen=True)
class Procedure:
    """What a script does once its flags are known to be right.

    Attributes:
        load_data: from the flags, where `data` is "embedded", "tfds" or a
            path that exists, to the data; raises `InputError`.
        make_task: from flags, among them `gain`, and data to what is to be
            learnt: tune.py searches with it.
        train: from flags, data and an empty or resumed folder to the metrics
            and the history that `training.fit` returned.
        panels: the curves to draw.
        columns: the table's headings and the keys of the metrics.
        check: raises `InputError` for flags that the data do not allow.
        race: a quantity that falls. Where given, the table has the updates
            that each kind takes to the value with which the first kind ends.
        progress: the x axis of the curves.
        claims: those of the paper that a comparison judges.
    """

    load_data: Callable[[Namespace], Any]
    make_task: Callable[[Namespace, Any], training.Task]
    train: Callable[
        [Namespace, Any, Path], tuple[dict[str, float], callbacks.History]
    ]
    panels: Sequence[plotting.Panel]
    columns: Mapping[str, str]
    check: Callable[[Namespace, Any], None] = lambda *_: None
    race: plotting.Panel | None = None
    progress: plotting.Panel = plotting.EPOCHS
    claims: Sequence[verdicts.Claim] = ()


def describe(plans: Sequence[Namespace], compare: bool) -> dict[str, Any]:
    """What `args.json` says: lists where the runs of a comparison differ."""
    record = {"backend": keras.backend.backend(), "compare": compare}
    for name in vars(plans[0]):
        if name not in _NOT_RECORDED:
            values = []
            for plan in plans:
                value = vars(plan)[name]
                # As it comes back from the file.
                value = list(value) if isinstance(value, tuple) else value
                if value not in values:
                    values.append(value)
            record[name] = values if len(values) > 1 else values[0]
    return record


def open_folder(folder: Path, record: dict[str, Any], resume: bool) -> None:
    """Makes `folder` ready for the run of `record`, or refuses it."""
    files.check_folder(folder)
    args_file = folder / "args.json"
    if args_file.exists():
        found = _read_record(args_file)
        differing = [
            f"{name} {found.get(name)} there, {record.get(name)} here"
            for name in {**found, **record}
            if found.get(name) != record.get(name)
        ]
        if differing:
            raise InputError(
                f"{folder} holds another run ({'; '.join(differing)}); "
                "choose another --output-dir"
            )
        if not resume:
            raise InputError(
                f"{folder} holds another run, of the same flags; add --resume "
                "to go on with it or choose another --output-dir"
            )
        files.remove_partial(folder)
        return
    if folder.exists() and not all(map(files.is_partial, folder.iterdir())):
        raise InputError(
            f"{folder} holds other files and no run; choose another "
            "--output-dir"
        )
    files.make_folder(folder)
    files.write_json(args_file, record)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return dict(files.read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def train_one(
    experiment: "Experiment",
    procedure: Procedure,
    plan: Namespace,
    data: Any,
    folder: Path,
) -> dict[str, float] | None:
    """Trains one kind, unless that is done; None if it diverged."""
    result = folder / "metrics.json"
    if result.exists():
        print(f"{folder} is finished.")
        return files.read_json(result)
    try:
        with training.environment(plan):
            metrics, history = procedure.train(plan, data, folder)
    except NonFiniteLossError as error:
        print(f"{experiment.name}.py: {folder}: {error}", file=sys.stderr)
        return None
    finally:
        keras.backend.clear_session()
    plotting.curves(
        history.rows,
        procedure.panels,
        folder / "curves.png",
        procedure.progress,
        plan.norm,
    )
    training.finish(folder, metrics, history)
    print(tables.table([*metrics], [[*metrics.values()]]))
    print(f"The results are in {folder}.")
    return metrics


def train_all(
    experiment: "Experiment",
    procedure: Procedure,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> int:
    """Trains every plan in a folder of its own and sets them side by side.

    Returns:
        The exit code: 1 if one diverged.
    """
    names = ("norm", *experiment.compared)
    groups: dict[tuple, list[plotting.Run]] = {}
    spent: list[float] = []
    for number, plan in enumerate(plans, 1):
        label = tuple(vars(plan)[name] for name in names)
        parts = [
            plan.norm,
            *(
                f"{name}-{value}"
                for name, value in zip(names[1:], label[1:], strict=True)
                if value is not None
            ),
        ]
        own = folder / "-".join([*parts, f"seed-{plan.seed}"]).replace("_", "-")
        left = time_left(spent, len(plans) - number + 1)
        print(f"[{number}/{len(plans)}] {own.name}{left}")
        start, finished = time.perf_counter(), (own / "metrics.json").exists()
        open_folder(own, describe([plan], compare=False), resume=True)
        metrics = train_one(experiment, procedure, plan, data, own)
        if not finished:
            spent.append(time.perf_counter() - start)
        groups.setdefault(label, []).append(plotting.Run(own, metrics))
    heading = [*(n.replace("_", " ") for n in names), *procedure.columns]
    rows = [
        [
            *("" if part is None else part for part in label),
            *tables.summary(runs, procedure.columns.values()),
        ]
        for label, runs in groups.items()
    ]
    if procedure.race is not None:
        first = experiment.kinds[0]
        heading.append(f"updates to the {procedure.race.label} of {first}")
        for row, (label, runs) in zip(rows, groups.items(), strict=True):
            rival = _rival(groups, (first, *label[1:]))
            row.append(tables.race(runs, rival, procedure.race))
    files.write_csv(
        folder / "comparison.csv",
        [dict(zip(heading, row, strict=True)) for row in rows],
    )
    for name, progress in (
        ("comparison", procedure.progress),
        ("comparison-seconds", plotting.SECONDS),
    ):
        plotting.comparison(
            groups,
            heading[1:2],
            procedure.panels,
            folder / f"{name}.png",
            progress,
        )
    print(tables.table(heading, rows))
    judged = [
        row
        for claim in procedure.claims
        for row in verdicts.judge(claim, groups)
    ]
    if judged:
        files.write_csv(folder / "verdicts.csv", judged)
        print(tables.table([*judged[0]], [row.values() for row in judged]))
    print(f"The table and the figures are in {folder}.")
    results = [run.metrics for runs in groups.values() for run in runs]
    return int(None in results)


def time_left(spent: Sequence[float], remaining: int) -> str:
    """How long the `remaining` runs may take; nothing before the first.

    Args:
        spent: the seconds of the runs that were trained so far.
        remaining: the runs that are still to be trained.
    """
    if not spent:
        return ""
    minutes = sum(spent) / len(spent) * remaining / 60
    if minutes < 1:
        return ", less than a minute left"
    return f", about {minutes:.0f} min left, as the others took"


def _rival(groups: dict[tuple, Any], wanted: tuple) -> Any:
    """The group of that label, where None stands for any value."""
    return next(
        runs
        for label, runs in groups.items()
        if all(
            part in (value, None)
            for part, value in zip(label, wanted, strict=True)
        )
    )
