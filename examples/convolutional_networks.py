"""Convolutional networks: section 6.7 of the paper.

A small network names what is in a picture. After every layer but the last:

    none            no normalisation
    layer           layer normalisation; an image's statistics over height,
                    width and channels
    layer-channels  statistics over the channels of each position
    batch           batch normalisation

The paper's claim: layer normalisation trains faster than no normalisation, and
batch normalisation is better than both. Units near the border of an image see
less of it and have other statistics than the rest, which layer normalisation
over all positions ignores; hence layer-channels for comparison.
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

KINDS = ("none", "layer", "layer-channels", "batch")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import convolutional_networks_task

    return convolutional_networks_task.PROCEDURE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_images(parser, "cifar10", "mnist", "fashion_mnist")


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    without_gain=("none",),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 20,
            "batch_size": 64,
            "units": 16,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "data_set": "cifar10",
            "epochs": 50,
            "batch_size": 128,
            "units": 32,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 4},
    add_arguments=_add_arguments,
    check=functools.partial(flags.check_batch_statistics, kinds=("batch",)),
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
