"""Drawing digits: DRAW, section 6.4 and figure 4 of the paper.

A recurrent autoencoder looks at a patch of the image and paints a patch of the
canvas, again and again (Gregor et al., 2015):

    none    LSTM
    weight  weight-normalised LSTM
    layer   LSTM with layer normalisation of the cell's state, eq. 29 to 31

The paper's claim: layer normalisation is almost twice as fast over the first
100 epochs of binarised MNIST, and after 200 epochs its variational bound is
82.09 nats against 82.36 nats without.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags
from common.errors import InputError

if TYPE_CHECKING:
    from common import runs

KINDS = ("none", "weight", "layer")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import draw_mnist_task

    return draw_mnist_task.PROCEDURE


def check(args: Namespace) -> None:
    """Refuses patches that the attention does not allow."""
    for name in ("read_size", "write_size"):
        if vars(args)[name] < 2:
            raise InputError(
                f"--{name.replace('_', '-')} has to be at least 2, since the "
                "stride of one filter means nothing"
            )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_counts(
        parser,
        glimpses="steps, T",
        latent="latent variables of a step",
        read_size="side of the patch that is read, at least 2",
        write_size="side of the patch that is written, at least 2",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    without_gain=("none", "weight"),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 80,
            "batch_size": 32,
            "units": 64,
            "learning_rate": 5e-3,
            "glimpses": 12,
            "latent": 10,
            "read_size": 3,
            "write_size": 4,
        },
        "paper": {
            "data": "tfds",
            "epochs": 200,
            "batch_size": 128,
            "units": 256,
            "learning_rate": 1e-3,
            "glimpses": 64,
            "latent": 100,
            "read_size": 2,
            "write_size": 5,
        },
    },
    smoke={"epochs": 2, "units": 8, "glimpses": 3},
    add_arguments=_add_arguments,
    check=check,
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
