"""The flags of the scripts: their types, their errors, their --help.

A script calls `parse`, which completes the flags from its presets and refuses
what does not fit before anything is imported that takes long.
"""

import argparse
import itertools
import math
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from common import files
from common.errors import InputError

# Kinds whose layers have no gain; --gain is None for them.
WITHOUT_GAIN = ("none", "weight", "symmetric", "lstm", "gru")
PRESETS = ("quick", "paper")
GONE = (
    "--tune is no longer part of the scripts: examples/tune.py searches with "
    "KerasTuner, and examples/search.py compares layers over many settings"
)
WORD_SCALE = "word vectors start from X times N(0, 1)"
FORGET_STEPS = (
    "biases with which cells forget after 1 to N steps, at least 2 (Tallec and "
    "Ollivier, 2018; default: the layers' biases)"
)
EVALUATE_EVERY = "updates between evaluations (default: one epoch)"
_COUNTS = {
    "epochs": "passes over the training data",
    "batch_size": "examples in a batch",
    "units": "size of the hidden layers",
}


class Flag:
    """A flag of a script; `None` is its value unless a preset has another."""

    def __init__(self, name: str, meaning: str, **how: Any):
        self.name, self.how = name, {"help": meaning, **how}

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds it to a parser."""
        parser.add_argument("--" + self.name.replace("_", "-"), **self.how)


def count(name: str, meaning: str, least: int = 1) -> Flag:
    """A flag that counts something."""
    return Flag(
        name, meaning, type=lambda text: _integer(text, least), metavar="N"
    )


def number(
    name: str, meaning: str, of: Callable[[str], float] | None = None
) -> Flag:
    """A flag that measures something, positive unless `of` is given."""
    return Flag(name, meaning, type=of or positive_number, metavar="X")


def choice(name: str, meaning: str, values: Sequence[str]) -> Flag:
    """A flag with a few values."""
    return Flag(name, meaning, choices=values)


def images(*data_sets: str) -> list[Flag]:
    """The flags of scripts that learn from images."""
    return [
        choice(
            "data_set",
            f"the data set of --data tfds (default: {data_sets[0]})",
            data_sets,
        ),
        count("examples", "only the first training images (default: all)"),
    ]


def parse(
    file: str,
    description: str,
    kinds: Sequence[str],
    presets: Mapping[str, Sequence[Any]],
    argv: Sequence[str] | None = None,
    *,
    own: Sequence[Flag] = (),
    compared: Mapping[str, Sequence[Any]] | None = None,
    default: str = "layer",
    part: str = "",
) -> Namespace:
    """The flags of a script, complete and checked.

    Args:
        file: the script's `__file__`.
        description: the first lines of --help.
        kinds: the values of --norm, in the order of tables and legends.
        presets: for each flag (with underscores) its value for the presets
            quick and paper, and with --smoke if that differs.
        argv: the words of the command line.
        own: the flags besides those of every script.
        compared: the flags besides --norm and --seed that --compare varies
            unless given, with their values.
        default: the kind without --norm.
        part: what follows the script's name in that of the folder.

    Returns:
        The flags, with `script`, the script's name, `folder`, the folder of
        the results, and `varied`: the values of the flags that differ between
        runs, by name.

    Raises:
        InputError: if flags do not fit together.
    """
    script = Path(file).stem
    parser = Parser(f"{script}.py", description, _describe(presets))
    _add_flags(parser, kinds, default)
    for flag in own:
        flag.add_to(parser)
    args = parser.parse_args(argv)
    if args.tune is not None:
        raise InputError(GONE)
    given = {k: v for k, v in vars(args).items() if v is not None}
    place = PRESETS.index(args.preset)
    for name, values in presets.items():
        small = args.smoke and len(values) > 2
        setattr(args, name, given.get(name, values[2 if small else place]))
    del args.tune
    args.script = script
    args.varied = _varied(args, given, kinds, default, compared or {})
    _check(args)
    usual = script + part + f"-{args.norm}" * (not args.compare)
    args.folder = Path(args.output_dir or Path("runs") / usual)
    files.check_folder(args.folder)
    if args.check:
        raise SystemExit(0)
    del args.check
    if args.compare:
        # Before the frameworks' logs, which start with their import.
        print(
            f"{len(plans(args))} networks will be trained, one after the "
            f"other. The results go to {args.folder}."
        )
    from common import devices

    for plan in plans(args):
        devices.check(plan)
    return args


def _add_flags(
    parser: argparse.ArgumentParser, kinds: Sequence[str], default: str
) -> None:
    add = parser.add_argument
    add(
        "--norm",
        choices=kinds,
        help=f"the normalisation (default: {default})",
    )
    add(
        "--compare",
        action="store_true",
        help="train all kinds, print a table and draw one figure",
    )
    add(
        "--preset",
        choices=PRESETS,
        default="quick",
        help="the defaults of other flags, listed below (default: quick)",
    )
    add(
        "--data",
        metavar="embedded|tfds|PATH",
        help="embedded: data that a package has; tfds: a data set that "
        "tensorflow-datasets loads; or the path of the published files",
    )
    add("--data-dir", metavar="DIR", help="the folder of tensorflow-datasets")
    for name, meaning in _COUNTS.items():
        count(name, meaning).add_to(parser)
    number("learning_rate", "learning rate").add_to(parser)
    number("gain", "initial gain of the normalisations").add_to(parser)
    add(
        "--seed",
        type=seed,
        nargs="+",
        metavar="N",
        help="the seed (default: 0), or with --compare several",
    )
    add(
        "--output-dir",
        metavar="DIR",
        help="the folder of the results (default: runs/SCRIPT)",
    )
    add("--resume", action="store_true", help="continue a killed run")
    add(
        "--distribute",
        choices=("none", "data-parallel"),
        default="none",
        help="split every batch over the devices (default: none)",
    )
    add(
        "--mixed-precision",
        choices=("float16", "bfloat16"),
        help="compute in half precision (default: in float32)",
    )
    add("--tensorboard", action="store_true", help="write TensorBoard logs")
    add(
        "--smoke",
        action="store_true",
        help="run for a minute at most, to see that it works",
    )
    # Of tune.py: whether a script takes these flags.
    add("--check", action="store_true", help=argparse.SUPPRESS)
    add("--tune", "--tune-epochs", nargs="*", help=argparse.SUPPRESS)


def _varied(args, given, kinds, default, compared) -> dict[str, list[Any]]:
    """The flags that differ between runs; the last one varies slowest."""
    if args.compare and args.norm:
        raise InputError("--compare trains all kinds; leave out --norm")
    args.norm = args.norm or default
    args.seed = args.seed or [0]
    if len(args.seed) > 1 and not args.compare:
        raise InputError("several values of --seed need --compare")
    if len(set(args.seed)) < len(args.seed):
        raise InputError(
            "--seed: expected different values, received "
            f"{' '.join(map(str, args.seed))}"
        )
    varied = {"norm": [args.norm]}
    if args.compare:
        varied["norm"] = [*kinds]
        for name, values in compared.items():
            varied[name] = [given[name]] if name in given else [*values]
    return varied | {"seed": args.seed}


def _check(args: Namespace) -> None:
    if args.data not in ("embedded", "tfds"):
        path = absolute(args.data)
        if not Path(path).exists():
            raise InputError(
                "--data: expected embedded, tfds or a path that exists, "
                f"received {args.data!r}"
            )
        args.data = path
    if args.data_dir is not None:
        args.data_dir = absolute(args.data_dir)
        if args.data != "tfds":
            raise InputError("--data-dir belongs to --data tfds")
    for plan in plans(args):
        if uses_batches(plan.norm) and plan.batch_size < 2:
            raise InputError(
                f"--norm {plan.norm} needs a --batch-size of at least 2, "
                f"received {plan.batch_size}"
            )


def uses_batches(norm: str) -> bool:
    """Whether a kind has batch statistics."""
    return norm.startswith(("batch", "bn"))


def plans(args: Namespace) -> list[Namespace]:
    """The flags of every run; all kinds have their first seed first."""
    found = []
    names = [*args.varied]
    for values in itertools.product(*(args.varied[n] for n in names[::-1])):
        own = dict(zip(names[::-1], values, strict=True))
        plan = Namespace(**vars(args) | own)
        if plan.norm in WITHOUT_GAIN:
            plan.gain = None
        if plan not in found:
            found.append(plan)
    return found


def _describe(presets: Mapping[str, Sequence[Any]]) -> str:
    """The values of the presets and --smoke, a line per flag, for --help."""
    lines = [["", *PRESETS, "--smoke"]]
    for name, (quick, paper, *smoke) in presets.items():
        values = map(_shown, (quick, paper, *smoke))
        lines.append(["--" + name.replace("_", "-"), *values])
    widths = [max(map(len, column)) for column in zip(*lines, strict=False)]
    widths.append(0)
    table = "\n".join(
        "  " + "  ".join(map(str.ljust, line, widths)).rstrip()
        for line in lines
    )
    return (
        "values of --preset and --smoke; a flag on the command line wins, then "
        f"--smoke:\n{table}"
    )


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def __init__(self, prog: str, description: str, epilog: str | None = None):
        super().__init__(
            prog,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def positive_integer(text: str) -> int:
    """The value of a flag that counts something."""
    return _integer(text, 1)


def seed(text: str) -> int:
    """The value of --seed; parts of a model use the next few numbers too."""
    return _integer(text, 0, 2**31 - 100)


def _integer(text: str, least: int, most: int = 2**31 - 1) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        raise argparse.ArgumentTypeError(
            f"expected an integer of at least {least}"
            + f" and at most {most}" * (number is not None and number > most)
            + f", received {text!r}"
        )
    return number


def positive_number(text: str) -> float:
    """The value of a flag that measures something."""
    return _number(text, "a positive number", lambda x: 0 < x < math.inf)


def nonnegative_number(text: str) -> float:
    """The value of a flag that measures something and may be zero."""
    return _number(text, "a number of at least 0", lambda x: 0 <= x < math.inf)


def share(text: str) -> float:
    """The value of a flag that is a fraction, from 0 to below 1."""
    return _number(text, "a number from 0 to below 1", lambda x: 0 <= x < 1)


def _number(text: str, expected: str, fits: Callable[[float], bool]) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not fits(number):
        raise argparse.ArgumentTypeError(
            f"expected {expected}, received {text!r}"
        )
    return number


def name(text: str) -> str:
    """The value of a flag that is a part of file names."""
    if not re.fullmatch(r"[\w-]+", text):
        raise argparse.ArgumentTypeError(
            f"expected letters, digits, - and _, received {text!r}"
        )
    return text


def absolute(path: str) -> str:
    """The absolute path of a flag that names a file or folder."""
    return str(Path(path).expanduser().resolve())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(f'"{part}"' for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
