"""A run, from an empty folder to its figure."""

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from common import (
    callbacks,
    ending,
    files,
    plotting,
    tables,
    training,
)
from common.errors import InputError, NonFiniteLossError

if TYPE_CHECKING:
    from common.cli import Experiment

# They say where and how to run, not what the result is.
_NOT_RECORDED = ("compare", "output_dir", "resume", "tensorboard")
# Of a comparison; they are in the results of its runs.
_OF_COMPARISONS = ("tune", "tune_epochs")
# Of what is kept in results/ they have the last part alone.
_PATHS = ("data", "data_dir", "eval_dir", "word_vectors")


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
        describe: the data in a few words, with their sizes, for titles.
        floors: from flags and data to what it takes no training to reach,
            metrics by name: chance, a trivial baseline.
        untrained: from flags and data to metrics of the model as it starts.
        held_out: from the data to those of `--tune`, whose test part is one
            that is taken from the training part.
        criterion: a quantity that falls, by whose least value there
            `--tune` chooses.
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
    describe: Callable[[Namespace, Any], str] = lambda args, _: (
        Path(args.data).name
    )
    floors: Callable[[Namespace, Any], Mapping[str, Mapping[str, float]]] = (
        lambda *_: {}
    )
    untrained: Callable[[Namespace, Any], Mapping[str, float]] | None = None
    held_out: Callable[[Any], Any] = lambda data: data
    criterion: plotting.Panel = plotting.VALIDATION


def describe(plans: Sequence[Namespace], compare: bool) -> dict[str, Any]:
    """What `args.json` says: lists where the runs of a comparison differ."""
    record = {"backend": keras.backend.backend(), "compare": compare}
    left_out = set(_NOT_RECORDED)
    if not (compare and plans[0].tune):
        left_out.update(_OF_COMPARISONS)
    for name in vars(plans[0]):
        if name not in left_out:
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
        for name in _PATHS:
            if _is_shortened(found.get(name), record.get(name)):
                found[name] = record[name]
        more = record.get("compare") and _adds_seeds(found, record)
        if more:
            found["seed"] = record["seed"]
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
        if more:
            files.write_json(args_file, record)
        return
    if folder.exists() and not all(map(files.is_partial, folder.iterdir())):
        raise InputError(
            f"{folder} holds other files and no run; choose another "
            "--output-dir"
        )
    files.make_folder(folder)
    files.write_json(args_file, record)


def _is_shortened(there: Any, here: Any) -> bool:
    """Whether `there` is the last part of the absolute path `here`."""
    return (
        isinstance(here, str)
        and Path(here).is_absolute()
        and there == Path(here).name
        and there not in ("embedded", "tfds")
    )


def _adds_seeds(found: dict[str, Any], record: dict[str, Any]) -> bool:
    """Whether `record` is the comparison `found` with more seeds."""

    def seeds(one):
        seed = one.get("seed")
        return seed if isinstance(seed, list) else [seed]

    more = seeds(record)[: len(seeds(found))] == seeds(found)
    return more and found | {"seed": record["seed"]} == record


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return dict(files.read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def title(data: str, plan: Namespace, compared: Sequence[str] = ()) -> str:
    """Data and sizes of a run, or of a comparison that varies some flags."""
    sizes = {
        "units": f"{plan.units} units",
        "batch_size": f"batch size {plan.batch_size}",
        "epochs": f"{plan.epochs} epochs",
    }
    named = [text for name, text in sizes.items() if name not in compared]
    return f"{data}\n{', '.join(named)}"


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
    ending.renew(experiment.script)
    try:
        with training.environment(plan):
            metrics, history = procedure.train(plan, data, folder)
    except NonFiniteLossError as error:
        print(f"{experiment.script}.py: {folder}: {error}", file=sys.stderr)
        return None
    finally:
        keras.backend.clear_session()
    plotting.curves(
        history.rows,
        procedure.panels,
        folder / "curves.png",
        procedure.progress,
        plan.norm,
        title(procedure.describe(plan, data), plan),
    )
    training.finish(folder, metrics, history)
    print(tables.table([*metrics], [[*metrics.values()]]))
    print(f"The results are in {folder}.")
    return metrics


def label_of(experiment: "Experiment", plan: Namespace) -> tuple:
    """The kind of a run, and the values of what a comparison varies."""
    return tuple(vars(plan)[n] for n in ("norm", *experiment.compared))


def folder_name(
    experiment: "Experiment", plan: Namespace, point: Mapping[str, Any]
) -> str:
    """The folder of a run in a comparison.

    Args:
        experiment: the script.
        plan: the flags of the run.
        point: of a run of a grid, what the grid varies.
    """
    norm, *values = label_of(experiment, plan)
    varied = dict(zip(experiment.compared, values, strict=True)) | {**point}
    parts = [f"{k}-{v}" for k, v in varied.items() if v is not None]
    return "-".join([norm, *parts, f"seed-{plan.seed}"]).replace("_", "-")


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
