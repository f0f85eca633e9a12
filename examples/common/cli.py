"""The flags of every experiment and the one way in which a script runs.

A script describes itself as an `Experiment` and hands it to `run`, which
checks everything before it trains anything: flags, environment, data, output
folder. What is wrong ends in one sentence and exit code 2.
"""

import argparse
import dataclasses
import itertools
import math
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from common import callbacks, plotting, runs, training
from common.errors import InputError


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
        without_gain: the kinds that --gain means nothing to; it is None for
            them, and a comparison that varies it trains them once.
        check: raises `InputError` for flags that do not go together, given
            the data.
        add_arguments: adds the experiment's own flags, with default None.
        race: a quantity that falls. Where given, the table has the updates
            that each kind takes to the value with which the first kind ends.
        make_task: from flags, among them `gain`, and data to what is to be
            learnt: lets tune.py search the experiment.
        progress: the x axis of the curves.
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
    without_gain: Sequence[str] = ()
    check: Callable[[Namespace, Any], None] = lambda *_: None
    add_arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    race: plotting.Panel | None = None
    make_task: Callable[[Namespace, Any], training.Task] | None = None
    progress: plotting.Panel = plotting.EPOCHS


def run(experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Runs a script.

    Returns:
        The exit code: 0, 1 if a loss left the finite numbers, 2 if the input
        cannot be used.
    """
    parser = _parser(experiment)
    args = parser.parse_args(argv)
    try:
        planned = plans(experiment, args)
        for plan in planned:
            training.check_environment(plan)
        data = experiment.load_data(planned[0])
        for plan in planned:
            experiment.check(plan, data)
        name = experiment.name + ("" if args.compare else f"-{planned[0].norm}")
        folder = Path(args.output_dir or Path("runs") / name)
        runs.open_folder(
            folder, runs.describe(planned, args.compare), args.resume
        )
        if args.compare:
            return runs.train_all(experiment, planned, data, folder)
        metrics = runs.train_one(experiment, planned[0], data, folder)
        return int(metrics is None)
    except InputError as error:
        parser.error(str(error))


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def parse(experiment: Experiment, argv: Sequence[str], prog: str) -> Namespace:
    """The flags of a script, as another program `prog` received them."""
    return _parser(experiment, prog).parse_args(argv)


def _parser(
    experiment: Experiment, prog: str | None = None
) -> argparse.ArgumentParser:
    parser = Parser(
        prog=prog or f"{experiment.name}.py",
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
    add("--epochs", type=positive_integer, metavar="N")
    add("--batch-size", type=positive_integer, metavar="N")
    add("--units", type=positive_integer, metavar="N")
    add("--learning-rate", type=positive_number, metavar="X")
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
        type=positive_integer,
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


def add_gain(parser: argparse.ArgumentParser) -> None:
    """Adds --gain, for `Experiment.add_arguments`."""
    parser.add_argument(
        "--gain",
        type=positive_number,
        metavar="X",
        help="initial gain of the normalisations (default: the layers' own)",
    )


def add_counts(parser: argparse.ArgumentParser, **meanings: str) -> None:
    """Adds flags that count something: their names with underscores."""
    for name, meaning in meanings.items():
        parser.add_argument(
            "--" + name.replace("_", "-"),
            type=positive_integer,
            metavar="N",
            help=meaning,
        )


def positive_integer(text: str) -> int:
    """The value of a flag that counts something."""
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


def positive_number(text: str) -> float:
    """The value of a flag that measures something."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a positive number, received {text!r}"
        )
    return number


def nonnegative_number(text: str) -> float:
    """The value of a flag that measures something and may be zero."""
    number = _number(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(
            f"expected a number of at least 0, received {text!r}"
        )
    return number


def share(text: str) -> float:
    """The value of a flag that says which part of something."""
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(
            f"expected a number from 0 to below 1, received {text!r}"
        )
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def plans(experiment: Experiment, args: Namespace) -> list[Namespace]:
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
        completed["data"] = absolute(completed["data"])
        if not Path(completed["data"]).exists():
            raise InputError(
                "--data: expected embedded, tfds or a path that exists, "
                f"received {args.data!r}"
            )
    if args.data_dir is not None:
        completed["data_dir"] = absolute(args.data_dir)
        if completed["data"] != "tfds":
            raise InputError("--data-dir belongs to --data tfds")
    planned = []
    for values in itertools.product(*varied.values()):
        chosen = completed | dict(zip(varied, values, strict=True))
        if chosen["norm"] in experiment.without_gain:
            chosen["gain"] = None
        for seed in args.seed:
            plan = Namespace(**chosen | {"seed": seed})
            if plan not in planned:
                planned.append(plan)
    return planned


def absolute(path: str) -> str:
    """The value of a flag that names a file or folder, from anywhere."""
    return str(Path(path).expanduser().resolve())
