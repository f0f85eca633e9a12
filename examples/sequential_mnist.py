"""Digits read one pixel after the other: the test of recurrent batch norm.

An LSTM sees the pixels of an image in the usual order, or in one fixed random
order, and names the digit after the last of them (Cooijmans et al., "Recurrent
Batch Normalization", 2016, section 5.1):

    none   LSTM
    batch  BNLSTM, statistics of each time step
    layer  LNLSTM

A step's input is [x, 1 - x] for all of them: layer normalisation would leave
the sign of a single number.

Their test accuracies on MNIST are 98.9 % without and 99.0 % with batch
normalisation in order, 90.2 % and 95.4 % permuted.
"""

import argparse
import functools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags

if TYPE_CHECKING:
    from common import runs

KINDS = ("none", "batch", "layer")
ORDERS = ("natural", "permuted")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import sequential_mnist_task

    return sequential_mnist_task.PROCEDURE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_images(parser, "mnist", "fashion_mnist")
    flags.add_counts(
        parser, pool="side of the squares that are averaged (default: 1)"
    )
    parser.add_argument(
        "--order", choices=ORDERS, help="of the pixels; both with --compare"
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
            "order": "natural",
            "epochs": 40,
            "batch_size": 64,
            "units": 64,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "data_set": "mnist",
            "order": "natural",
            "epochs": 100,
            "batch_size": 64,
            "units": 100,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 8},
    compared={"order": ORDERS},
    add_arguments=_add_arguments,
    check=functools.partial(flags.check_batch_statistics, kinds=("batch",)),
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
