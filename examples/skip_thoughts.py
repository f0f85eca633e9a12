"""Sentence vectors: skip-thoughts, section 6.3, figure 3 and table 3.

A GRU reads a sentence, and from its last state two others write the sentences
before and after it (Kiros et al., 2015). What that state is good for is
measured every --evaluate-every updates, without changing it:

    none   GRU
    layer  GRU with layer normalisation, eq. 26 to 28

The paper's claim: with layer normalisation training is faster, and the results
after a million updates are better on all tasks. The embedded data are the King
James Bible, and the tasks to find verses in the World English Bible and to tell
books apart; with --eval-dir they are those of the paper, from their published
files.
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

KINDS = ("none", "layer")
# Published ones; `common.datasets.sentence_tasks` reads them.
TASKS = ("sick", "mr", "cr", "subj", "mpqa")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import skip_thoughts_task

    if args.eval_dir:
        return skip_thoughts_task.with_tasks(args.eval_tasks or TASKS)
    return skip_thoughts_task.PROCEDURE


def check(args: Namespace) -> None:
    """Refuses tasks without a folder."""
    if args.eval_tasks and not args.eval_dir:
        raise InputError("--eval-tasks names tasks of --eval-dir")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_word_scale(parser)
    flags.add_counts(
        parser,
        word_units="size of a word's vector",
        vocabulary="the most frequent words, which are known",
        length="words after which a sentence is cut",
    )
    parser.add_argument(
        "--eval-dir",
        type=flags.absolute,
        metavar="DIR",
        help="the folder of the published files of the tasks",
    )
    parser.add_argument(
        "--eval-tasks",
        nargs="+",
        type=flags.name,
        metavar="TASK",
        help=f"of {', '.join(TASKS)} (default: all), verses, which needs no "
        "file, or any NAME of two files NAME.pos and NAME.neg, a sentence a "
        "line",
    )
    parser.add_argument(
        "--word-vectors",
        type=flags.absolute,
        metavar="FILE",
        help="word2vec vectors in its text format, for words not in the text",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    without_gain=("none",),
    tuned=("word_scale", (0.1, 0.3, 1.0)),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 2,
            "batch_size": 64,
            "units": 128,
            "learning_rate": 2e-3,
            "evaluate_every": 100,
            "word_units": 64,
            "word_scale": 0.1,
            "vocabulary": 2_000,
            "length": 20,
        },
        "paper": {
            "data": "tfds",  # Which says what is wanted.
            "epochs": 1,
            "batch_size": 64,
            "units": 2_400,
            "learning_rate": 2e-4,
            "evaluate_every": 1_000,
            "word_units": 620,
            "word_scale": 0.1,
            "vocabulary": 20_000,
            "length": 30,
        },
    },
    smoke={
        "epochs": 2,
        "units": 8,
        "word_units": 8,
        "vocabulary": 200,
        "length": 6,
        "evaluate_every": 4,
    },
    add_arguments=_add_arguments,
    check=check,
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
