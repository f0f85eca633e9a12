"""A run, from an empty folder to its figure."""

import statistics
import sys
import zlib
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import ending, files, measures, plotting, tables, training
from common.errors import InputError, NonFiniteLossError
from common.experiment import Experiment

# They decide how to run, and do not change the result.
_NOT_RECORDED = ("compare", "output_dir", "resume", "tensorboard")
# Flags of a comparison; its runs have their results.
_OF_COMPARISONS = ("tune", "tune_epochs")
# The settings of runs from before --decay, and of runs with it that do not
# record the initial word vectors.
_BEFORE = {"decay": "none", "forget_steps": None, "embeddings": "uniform"}
_SINCE = {"embeddings": "normal"}
# Paths, of which the kept results in results/ have only the last part.
_PATHS = ("data", "data_dir", "eval_dir", "word_vectors")
# The checksum of data from files, which older runs lack.
_CHECKSUM = "data_crc32"


def describe(
    plans: Sequence[Namespace], compare: bool, data: Any = None
) -> dict[str, Any]:
    """The content of `args.json`, with lists for flags of which runs differ.

    Args:
        data: the data, unless the run is a part of a comparison, which
            records their checksum. Embedded data have none: the last digits
            of numbers that a script computes may depend on the machine.
    """
    record = {"backend": keras.backend.backend(), "compare": compare}
    left_out = set(_NOT_RECORDED)
    if not (compare and plans[0].tune):
        left_out.update(_OF_COMPARISONS)
    for name in vars(plans[0]):
        if name not in left_out:
            values = []
            for plan in plans:
                value = vars(plan)[name]
                # As read from the file.
                value = list(value) if isinstance(value, tuple) else value
                if value not in values:
                    values.append(value)
            record[name] = values if len(values) > 1 else values[0]
    paths = {vars(plans[0]).get(name) for name in _PATHS}
    if data is not None and paths - {None, "embedded"}:
        record[_CHECKSUM] = f"{crc32(data):08x}"
    return record


def crc32(data: Any, start: int = 0) -> int:
    """The CRC-32 of arrays, texts and numbers, also nested.

    It is the same in every process, unlike `hash`.

    Raises:
        TypeError: for other objects.
    """
    if isinstance(data, Mapping):
        data = sorted(data.items())
    if isinstance(data, (list, tuple)):
        start = crc32(len(data), start)
        for part in data:
            start = crc32(part, start)
        return start
    if isinstance(data, np.ndarray) and not data.dtype.hasobject:
        start = crc32(f"{data.dtype} {data.shape}", start)
        flat = np.ascontiguousarray(data).reshape(-1)
        return zlib.crc32(flat.view(np.uint8), start)
    if not isinstance(data, (str, int, float, np.number, type(None))):
        raise TypeError(f"expected texts and numbers, received {type(data)}")
    return zlib.crc32(f"{data}\n".encode(), start)


def open_folder(folder: Path, record: dict[str, Any], resume: bool) -> None:
    """Makes `folder` ready for the run of `record`, or refuses it."""
    files.check_folder(folder)
    args_file = folder / "args.json"
    if args_file.exists():
        found = _read_record(args_file)
        old = _SINCE if "decay" in found else _BEFORE
        found = {key: old[key] for key in old if key in record} | found
        for name in _PATHS:
            if _is_shortened(found.get(name), record.get(name)):
                found[name] = record[name]
        if _CHECKSUM not in found:
            # Nothing tells which data the older runs had.
            record = {n: v for n, v in record.items() if n != _CHECKSUM}
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
                f"{folder} holds another run with the same flags; add --resume "
                "to continue it or choose another --output-dir"
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
    experiment: Experiment,
    plan: Namespace,
    data: Any,
    folder: Path,
) -> dict[str, float] | None:
    """Trains one kind, unless that is done; None if it diverged."""
    result = folder / "metrics.json"
    if result.exists():
        done = measures.Run(folder, files.read_json(result))
        done.check()
        print(f"{folder} is finished.")
        return done.metrics
    ending.renew(experiment.script)
    try:
        with training.environment(plan):
            metrics, history = experiment.train(plan, data, folder)
    except NonFiniteLossError as error:
        print(f"{experiment.script}.py: {folder}: {error}", file=sys.stderr)
        return None
    finally:
        keras.backend.clear_session()
    plotting.curves(
        history.rows,
        experiment.panels,
        folder / "curves.png",
        experiment.progress,
        plan.norm,
        title(experiment.describe(plan, data), plan),
    )
    training.finish(folder, metrics, history)
    print(tables.table(["metric", folder.name], metrics.items()))
    print(f"The results are in {folder}.")
    return metrics


def label_of(experiment: Experiment, plan: Namespace) -> tuple:
    """The kind of a run, and its values of the flags that are compared."""
    return tuple(vars(plan)[n] for n in ("norm", *experiment.compared))


def folder_name(
    experiment: Experiment, plan: Namespace, point: Mapping[str, Any]
) -> str:
    """The folder of a run in a comparison.

    Args:
        plan: the flags of the run.
        point: the flags of a grid's point, for a run of a grid.
    """
    norm, *values = label_of(experiment, plan)
    varied = dict(zip(experiment.compared, values, strict=True)) | {**point}
    parts = [f"{k}-{v}" for k, v in varied.items() if v is not None]
    return "-".join([norm, *parts, f"seed-{plan.seed}"]).replace("_", "-")


def time_left(
    spent: Mapping[tuple, Sequence[float]], remaining: Sequence[tuple]
) -> str:
    """The time that the remaining runs may take; nothing if it is a guess.

    Kinds and sizes differ by a factor of ten, so that the time of a run is
    known only from a run with another seed.

    Args:
        spent: the seconds of whole runs so far, by label.
        remaining: the labels of the runs that are still to be trained.
    """
    if not all(label in spent for label in remaining):
        return ""
    seconds = sum(statistics.fmean(spent[label]) for label in remaining)
    if seconds < 90:
        return f", about {seconds:.0f} s left"
    # Whole minutes would be too coarse for a few.
    return f", about {seconds / 60:.{1 if seconds < 600 else 0}f} min left"
