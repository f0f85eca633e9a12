"""Permutation invariant MNIST: section 6.6 and figure 6 of the paper.

A classifier with two hidden layers learns handwritten digits from pixels
without knowing how they lie together, in large and in small batches:

    none   no normalisation
    layer  layer normalisation of the summed inputs of both hidden layers
    batch  batch normalisation of the summed inputs of all three layers

The paper's claim: layer normalisation is robust to the batch size, and at
batch size 4 it trains faster than batch normalisation.
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

KINDS = ("none", "layer", "batch")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import permutation_invariant_mnist_task

    return permutation_invariant_mnist_task.PROCEDURE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_images(parser, "mnist", "fashion_mnist")


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    without_gain=("none",),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 30,
            "batch_size": 128,
            "units": 256,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "data_set": "mnist",
            "epochs": 60,
            "batch_size": 128,
            "units": 1000,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 32},
    compared={"batch_size": (128, 4)},
    add_arguments=_add_arguments,
    check=functools.partial(flags.check_batch_statistics, kinds=("batch",)),
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
