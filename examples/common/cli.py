"""The flags of every experiment and the one way in which a script runs.

A script describes itself as an `Experiment` and hands it to `run`, which
checks everything before it trains anything: flags, environment, data, output
folder. What is wrong ends in one sentence and exit code 2.
"""

import argparse
import dataclasses
import itertools
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import keras

from common import callbacks, files, plotting, training
from common.errors import InputError, NonFiniteLossError

# They say where and how to run, not what the result is.
_NOT_RECORDED = ("compare", "output_dir", "resume", "tensorboard")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What tells one script from another.

    Attributes:
        name: the script's name; the default output folder has it too.
        description: the first lines of --help.
        kinds: the values of --norm, in the order of tables and legends.
        default_kind: the value without the flag.
        presets: for "quick" and "paper", the defaults of the flags (with
            underscores).
        smoke: the flags that --smoke sets, unless given.
        load_data: from the flags, where `data` is "embedded", "tfds" or a
            path that exists, to the data; raises `InputError`.
        train: from flags, data and an empty or resumed folder to the metrics
            and the history that `training.fit` returned.
        panels: the curves to draw.
        columns: the table's headings and the keys of the metrics.
        compared: the flags, beside --norm and --seed, that --compare varies
            unless given, with their values; the first makes the columns of
            the figure.
        check: raises `InputError` for flags that do not go together, given
            the data.
        add_arguments: adds the experiment's own flags, with default None.
    """

    name: str
    description: str
    kinds: Sequence[str]
    default_kind: str
    presets: Mapping[str, Mapping[str, Any]]
    smoke: Mapping[str, Any]
    load_data: Callable[[Namespace], Any]
    train: Callable[
        [Namespace, Any, Path], tuple[dict[str, float], callbacks.History]
    ]
    panels: Sequence[plotting.Panel]
    columns: Mapping[str, str]
    compared: Mapping[str, Sequence[Any]] = dataclasses.field(
        default_factory=dict
    )
    check: Callable[[Namespace, Any], None] = lambda args, data: None
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda parser: (
        None
    )


def run(experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Runs a script.

    Returns:
        The exit code: 0, 1 if a loss left the finite numbers, 2 if the input
        cannot be used.
    """
    parser = _parser(experiment)
    args = parser.parse_args(argv)
    try:
        plans = _plans(experiment, args)
        for plan in plans:
            training.check_environment(plan)
        data = experiment.load_data(plans[0])
        for plan in plans:
            experiment.check(plan, data)
        name = experiment.name + ("" if args.compare else f"-{plans[0].norm}")
        folder = Path(args.output_dir or Path("runs") / name)
        _open_folder(folder, _record(plans, args.compare), args.resume)
        if args.compare:
            return _compare(experiment, plans, data, folder)
        return 1 if _one(experiment, plans[0], data, folder) is None else 0
    except InputError as error:
        parser.error(str(error))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def _parser(experiment: Experiment) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"{experiment.name}.py",
        description=experiment.description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--norm", choices=experiment.kinds, help="the normalisation")
    add(
        "--compare",
        action="store_true",
        help="train all kinds, print a table and draw one figure",
    )
    add("--preset", choices=tuple(experiment.presets), default="quick")
    add(
        "--data",
        metavar="embedded|tfds|PATH",
        help="where the data come from",
    )
    add("--data-dir", metavar="DIR", help="the folder of tensorflow-datasets")
    add("--epochs", type=_positive, metavar="N")
    add("--batch-size", type=_positive, metavar="N")
    add("--units", type=_positive, metavar="N")
    add("--learning-rate", type=_rate, metavar="X")
    add(
        "--seed",
        type=_seed,
        nargs="+",
        default=[0],
        metavar="N",
        help="several with --compare: means and ranges are reported",
    )
    add(
        "--evaluate-every",
        type=_positive,
        metavar="N",
        help="updates between evaluations and backups (default: one epoch)",
    )
    add("--output-dir", metavar="DIR")
    add("--resume", action="store_true", help="go on with a killed run")
    add("--distribute", choices=("none", "data-parallel"), default="none")
    add("--mixed-precision", choices=("float16", "bfloat16"))
    add("--tensorboard", action="store_true")
    add(
        "--smoke",
        action="store_true",
        help="a minute at most, only to see that it works",
    )
    experiment.add_arguments(parser)
    return parser


def _positive(text: str) -> int:
    return _integer(text, 1)


def _seed(text: str) -> int:
    return _integer(text, 0)


def _integer(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not least <= number < 2**31:
        raise argparse.ArgumentTypeError(
            f"expected an integer of at least {least}, received {text!r}"
        )
    return number


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a positive number, received {text!r}"
        )
    return number


def _plans(experiment: Experiment, args: Namespace) -> list[Namespace]:
    """The flags of every run, completed by --smoke and the preset."""
    if args.compare and args.norm:
        raise InputError("--compare trains all kinds; leave out --norm")
    if len(args.seed) > 1 and not args.compare:
        raise InputError("several values of --seed need --compare")
    if len(set(args.seed)) < len(args.seed):
        raise InputError("--seed names a value twice")
    given = vars(args)
    varied = {"norm": [args.norm or experiment.default_kind]}
    if args.compare:
        varied["norm"] = list(experiment.kinds)
        for name, values in experiment.compared.items():
            varied[name] = (
                list(values) if given[name] is None else [given[name]]
            )
    defaults = {
        "data": "embedded",
        **experiment.presets[args.preset],
        **({"data": "embedded", **experiment.smoke} if args.smoke else {}),
    }
    completed = given | {
        name: value for name, value in defaults.items() if given[name] is None
    }
    if completed["data"] not in ("embedded", "tfds"):
        completed["data"] = _absolute(completed["data"])
        if not Path(completed["data"]).exists():
            raise InputError(
                "--data: expected embedded, tfds or a path that exists, "
                f"received {args.data!r}"
            )
    if args.data_dir is not None:
        completed["data_dir"] = _absolute(args.data_dir)
        if completed["data"] != "tfds":
            raise InputError("--data-dir belongs to --data tfds")
    return [
        Namespace(**completed | dict(zip(varied, values, strict=True)) | seed)
        for values in itertools.product(*varied.values())
        for seed in ({"seed": value} for value in args.seed)
    ]


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def _record(plans: Sequence[Namespace], compare: bool) -> dict[str, Any]:
    """What `args.json` says: lists where the runs of a comparison differ."""
    record = {"backend": keras.backend.backend(), "compare": compare}
    for name in vars(plans[0]):
        if name not in _NOT_RECORDED:
            values = list(dict.fromkeys(vars(plan)[name] for plan in plans))
            record[name] = values if len(values) > 1 else values[0]
    return record


def _open_folder(folder: Path, record: dict[str, Any], resume: bool) -> None:
    """Makes `folder` ready for the run of `record`, or refuses it."""
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise InputError(f"--output-dir: {existing} is no writable folder")
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
    folder.mkdir(parents=True, exist_ok=True)
    files.write_json(args_file, record)


def _read_record(path: Path) -> dict[str, Any]:
    try:
        return dict(files.read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _one(
    experiment: Experiment, plan: Namespace, data: Any, folder: Path
) -> dict[str, float] | None:
    """Trains one kind, unless that is done; None if it diverged."""
    result = folder / "metrics.json"
    if result.exists():
        print(f"{folder} is finished.")
        return files.read_json(result)
    try:
        with training.environment(plan):
            metrics, history = experiment.train(plan, data, folder)
    except NonFiniteLossError as error:
        print(f"{experiment.name}.py: {folder}: {error}", file=sys.stderr)
        return None
    finally:
        keras.backend.clear_session()
    plotting.curves(history.rows, experiment.panels, folder / "curves.png")
    training.finish(folder, metrics, history)
    print(plotting.table([*metrics], [[*metrics.values()]]))
    print(f"The results are in {folder}.")
    return metrics


def _compare(
    experiment: Experiment, plans: Sequence[Namespace], data: Any, folder: Path
) -> int:
    """Trains every plan in a folder of its own and sets them side by side."""
    names = ("norm", *experiment.compared)
    groups: dict[tuple, list[plotting.Run]] = {}
    for number, plan in enumerate(plans, 1):
        label = tuple(vars(plan)[name] for name in names)
        parts = [plan.norm, *(f"{n}-{vars(plan)[n]}" for n in names[1:])]
        one = folder / "-".join([*parts, f"seed-{plan.seed}"]).replace("_", "-")
        print(f"[{number}/{len(plans)}] {one.name}")
        _open_folder(one, _record([plan], compare=False), resume=True)
        metrics = _one(experiment, plan, data, one)
        groups.setdefault(label, []).append(plotting.Run(one, metrics))
    heading = [*(n.replace("_", " ") for n in names), *experiment.columns]
    rows = [
        [*label, *plotting.summary(runs, experiment.columns.values())]
        for label, runs in groups.items()
    ]
    files.write_csv(
        folder / "comparison.csv",
        [dict(zip(heading, row, strict=True)) for row in rows],
    )
    plotting.comparison(
        groups, heading[1:2], experiment.panels, folder / "comparison.png"
    )
    print(plotting.table(heading, rows))
    print(f"The table and the figure are in {folder}.")
    return int(any(r.metrics is None for runs in groups.values() for r in runs))
