"""Handwriting: section 6.5 and figure 5 of the paper.

Three LSTMs, one of which moves a window over the text, learn how the pen goes
on, and write (Graves, 2013, section 5):

    none   LSTM
    layer  LSTM with layer normalisation

The paper's claim: both end at about the same negative log-likelihood, and layer
normalisation gets there sooner.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags
from common.datasets.alphabet import ALPHABET
from common.errors import InputError

if TYPE_CHECKING:
    from common import runs

KINDS = ("none", "layer")

TEXTS = ("the lord", "And God", "of Egypt", "his son")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import handwriting_generation_task

    return handwriting_generation_task.PROCEDURE


def check(args: Namespace) -> None:
    """Refuses texts that the alphabet does not allow."""
    for text in args.text:
        unknown = sorted(set(text) - set(ALPHABET))
        if unknown or not text:
            raise InputError(
                f"--text: expected characters of '{ALPHABET}', "
                f"received {text!r}"
            )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    parser.add_argument(
        "--length",
        type=flags.positive_integer,
        metavar="N",
        help="points after which a line is cut",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="STRING",
        help="what the trained model shall write",
    )
    parser.add_argument(
        "--bias",
        type=flags.nonnegative_number,
        metavar="X",
        help="0 for samples of the learned density, more for clearer ones",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    without_gain=("none",),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 15,
            "batch_size": 32,
            "units": 64,
            "learning_rate": 3e-3,
            "length": 500,
            "text": TEXTS,
            "bias": 1.0,
        },
        "paper": {
            "data": "tfds",
            "epochs": 50,
            "batch_size": 8,
            "units": 400,
            "learning_rate": 1e-3,
            "length": 500,
            "text": TEXTS,
            "bias": 1.0,
        },
    },
    smoke={"epochs": 2, "units": 8, "length": 20},
    add_arguments=_add_arguments,
    check=check,
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
