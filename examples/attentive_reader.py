"""Reading and answering: section 6.2 and figure 2 of the paper.

An LSTM reads a passage, another one a query that lacks the name of an entity,
and attention looks the name up in the passage (Hermann et al., 2015, in the
set-up of Cooijmans et al., "Recurrent Batch Normalization", 2016):

    none              LSTM
    batch             BNLSTM, statistics of each time step
    batch-everywhere  and batch normalisation in attention and output
    layer             LNLSTM

The paper's claim: layer normalisation trains faster than all the others and
ends with the lowest validation error.
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

KINDS = ("none", "batch", "batch-everywhere", "layer")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import attentive_reader_task

    return attentive_reader_task.PROCEDURE


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_counts(
        parser,
        sentences="sentences to which a passage is cut",
        length="words to which a passage is cut",
        entities="the most that a question may have, or is left out",
        words="the most frequent words, which are known",
    )
    for name, what in (
        ("--dropout", "share of inputs and outputs to drop, below 1"),
        ("--momentum", "share of its statistics that batch norm. keeps"),
    ):
        parser.add_argument(name, type=flags.share, metavar="X", help=what)
    parser.add_argument(
        "--spread",
        type=flags.positive_number,
        metavar="X",
        help="standard deviation of the embeddings at the start",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 12,
            "batch_size": 32,
            "units": 64,
            "learning_rate": 1e-3,
            "sentences": 4,
            "length": 40,
            "entities": 5,
            "words": 300,
            "dropout": 0.0,
            "momentum": 0.95,
            "spread": 1.0,
        },
        "paper": {
            "data": "tfds",
            "epochs": 8,
            "batch_size": 64,
            "units": 240,
            "learning_rate": 8e-5,
            "sentences": 4,
            "length": 300,
            "entities": 1_000,
            "words": 120_000,
            "dropout": 0.5,
            "momentum": 0.99,
            "spread": 0.01,
        },
    },
    smoke={"epochs": 2, "units": 8},
    compared={"gain": (0.1, 1.0)},
    without_gain=("none",),
    tuned=("spread", (0.1, 0.3, 1.0)),
    add_arguments=_add_arguments,
    check=functools.partial(
        flags.check_batch_statistics, kinds=("batch", "batch-everywhere")
    ),
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
