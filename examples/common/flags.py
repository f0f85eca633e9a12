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


def _checked(
    of: Callable[[str], float], expected: str, fits: Callable[[float], bool]
) -> Callable[[str], Any]:
    """The type of a flag whose values are numbers."""

    def check(text):
        try:
            number = of(text)
        except ValueError:
            number = math.nan
        if not fits(number):
            raise argparse.ArgumentTypeError(
                f"expected {expected}, received {text!r}"
            )
        return number

    return check


def integer(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of a flag that counts something."""
    limit = "" if most is None else f" and at most {most}"
    return _checked(
        int,
        f"an integer of at least {least}{limit}",
        lambda x: least <= x <= (most or 2**31 - 1),
    )


# Parts of a model use the next few numbers too.
seed = integer(0, 2**31 - 100)
positive = _checked(float, "a positive number", lambda x: 0 < x < math.inf)
nonnegative = _checked(
    float, "a number of at least 0", lambda x: 0 <= x < math.inf
)
share = _checked(float, "a number from 0 to below 1", lambda x: 0 <= x < 1)


class Flag:
    """A flag of a script; `None` is its value unless a preset has another."""

    def __init__(self, name: str, meaning: str, **how: Any):
        self.name, self.how = name, {"help": meaning, **how}

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Adds it to a parser."""
        parser.add_argument("--" + self.name.replace("_", "-"), **self.how)


def count(name: str, meaning: str, least: int = 1) -> Flag:
    """A flag that counts something."""
    return Flag(name, meaning, type=integer(least), metavar="N")


def number(
    name: str, meaning: str, of: Callable[[str], float] | None = None
) -> Flag:
    """A flag that measures something, positive unless `of` is given."""
    return Flag(name, meaning, type=of or positive, metavar="X")


def choice(name: str, meaning: str, values: Sequence[str]) -> Flag:
    """A flag with a few values."""
    return Flag(name, meaning, choices=values)


def images(*data_sets: str) -> list[Flag]:
    """The flags of scripts that learn from images."""
    meaning = f"the data set of --data tfds (default: {data_sets[0]})"
    how = {"choices": data_sets, "default": data_sets[0]}
    return [Flag("data_set", meaning, **how), EXAMPLES]


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
        The flags, with the script's name, the folder of the results, and the
        values of the flags that differ between runs, by name.
    """
    script = Path(file).stem
    parser = Parser(f"{script}.py", description, _describe(presets))
    for flag in (*_usual(kinds, default), *own):
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


def _usual(kinds: Sequence[str], default: str) -> list[Flag]:
    """The flags of every script."""
    switch = {"action": "store_true"}
    return [
        choice("norm", f"the normalisation (default: {default})", kinds),
        Flag("compare", "train all kinds, with a table and a figure", **switch),
        Flag(
            "preset",
            "the defaults of other flags, listed below (default: quick)",
            **{"choices": PRESETS, "default": "quick"},
        ),
        Flag(
            "data",
            "embedded: data that a package has; tfds: a data set that "
            "tensorflow-datasets loads; or the path of the published files",
            metavar="embedded|tfds|PATH",
        ),
        Flag("data_dir", "the folder of tensorflow-datasets", metavar="DIR"),
        count("epochs", "passes over the training data"),
        count("batch_size", "examples in a batch"),
        count("units", "size of the hidden layers"),
        number("learning_rate", "learning rate"),
        number("gain", "initial gain of the normalisations"),
        Flag(
            "seed",
            "the seed (default: 0), or with --compare several",
            **{"type": seed, "nargs": "+", "metavar": "N"},
        ),
        OUTPUT_DIR,
        Flag("resume", "continue a killed run", **switch),
        Flag(
            "distribute",
            "split every batch over the devices (default: none)",
            **{"choices": ("none", "data-parallel"), "default": "none"},
        ),
        choice(
            "mixed_precision",
            "compute in half precision (default: in float32)",
            ("float16", "bfloat16"),
        ),
        Flag("tensorboard", "write TensorBoard logs", **switch),
        SMOKE,
        # Of tune.py: whether a script takes these flags.
        Flag("check", argparse.SUPPRESS, **switch),
        Flag("tune", argparse.SUPPRESS, nargs="*"),
        Flag("tune_epochs", argparse.SUPPRESS, dest="tune", nargs="*"),
    ]


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
        if not Path(absolute(args.data)).exists():
            raise InputError(
                "--data: expected embedded, tfds or a path that exists, "
                f"received {args.data!r}"
            )
        args.data = absolute(args.data)
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
    names = [*args.varied][::-1]
    for values in itertools.product(*(args.varied[name] for name in names)):
        own = dict(zip(names, values, strict=True))
        plan = Namespace(**vars(args) | own)
        if plan.norm in WITHOUT_GAIN:
            plan.gain = None
        if plan not in found:
            found.append(plan)
    return found


def _describe(presets: Mapping[str, Sequence[Any]]) -> str:
    """The values of the presets and --smoke, a line per flag, for --help."""
    lines = [("", *PRESETS, "--smoke")]
    for name, values in presets.items():
        lines.append(("--" + name.replace("_", "-"), *map(_shown, values)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=False)]
    table = (
        "  ".join(map(str.ljust, line, (*widths, 0))).rstrip() for line in lines
    )
    return (
        "values of --preset and --smoke; a flag on the command line wins, then "
        "--smoke:\n  " + "\n  ".join(table)
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


# Flags of several scripts.
OUTPUT_DIR = Flag(
    "output_dir",
    "the folder of the results (default: runs/SCRIPT)",
    metavar="DIR",
)
SMOKE = Flag(
    *("smoke", "run for a minute at most, to see that it works"),
    action="store_true",
)
EXAMPLES = count("examples", "only the first training images (default: all)")
FORGET_STEPS = count(
    "forget_steps",
    "biases with which cells forget after 1 to N steps, at least 2 (Tallec and "
    "Ollivier, 2018; default: the layers' biases)",
    least=2,
)
EVALUATE_EVERY = count(
    "evaluate_every", "updates between evaluations (default: one epoch)"
)
WORD_SCALE = number("word_scale", "word vectors start from X times N(0, 1)")
WORD_UNITS = count("word_units", "size of a word's vector")
