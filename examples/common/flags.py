"""The flags of the scripts: their types, their errors, their --help."""

import argparse
import math
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from common.errors import InputError

WORD_SCALE = "word vectors start from X times N(0, 1)"


FORGET_STEPS = (
    "biases with which cells forget after 1 to N steps, at least 2 (Tallec and "
    "Ollivier, 2018; default: the layers' biases); with --tune the N to try"
)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line.

    Args:
        prog: the name in messages.
        description: the first lines of --help.
        epilog: the last lines of --help.
    """

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


def add_images(parser: argparse.ArgumentParser, *data_sets: str) -> None:
    """Adds --data-set and --examples, for `Experiment.add_arguments`."""
    parser.add_argument(
        "--data-set",
        choices=data_sets,
        help=f"the data set of --data tfds (default: {data_sets[0]})",
    )
    add_counts(parser, examples="only the first training images (default: all)")


def add_counts(
    parser: argparse.ArgumentParser, least: int = 1, **meanings: str | None
) -> None:
    """Adds flags that count something: their names with underscores."""

    def count(text):
        return _integer(text, least)

    _add(parser, count, "N", meanings)


def add_numbers(
    parser: argparse.ArgumentParser,
    of: Callable[[str], float] | None = None,
    **meanings: str | None,
) -> None:
    """Adds flags that measure something, positive unless `of` is given."""
    _add(parser, of or positive_number, "X", meanings)


def _add(parser, of, metavar, meanings) -> None:
    for name, meaning in meanings.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=of, metavar=metavar, help=meaning)


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


def check_batch_statistics(args: Namespace, kinds: Sequence[str]) -> None:
    """Refuses batches of one example for kinds with batch statistics."""
    if args.norm in kinds and args.batch_size < 2:
        raise InputError(
            f"--norm {args.norm} needs a --batch-size of at least 2, received "
            f"{args.batch_size}"
        )


def describe_presets(
    presets: Mapping[str, Mapping[str, Any]], smoke: Mapping[str, Any]
) -> str:
    """The values of the presets and --smoke, a line per flag, for --help."""
    columns = {**presets, "--smoke": {"data": "embedded", **smoke}}
    names = dict.fromkeys(name for own in columns.values() for name in own)
    lines = [["", *columns]]
    for name in names:
        values = (_shown(own.get(name)) for own in columns.values())
        lines.append(["--" + name.replace("_", "-"), *values])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = "\n".join(
        "  " + "  ".join(map(str.ljust, line, widths)).rstrip()
        for line in lines
    )
    return (
        "values of --preset and --smoke; a flag on the command line wins, then "
        f"--smoke:\n{table}"
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return " ".join(f'"{part}"' for part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
