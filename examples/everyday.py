"""Does layer normalisation help with tasks such as mine?

Five usual tasks (--task), and for each the layers that one may choose from:

    lstm, lnlstm, bnlstm  LSTM, with layer or with batch normalisation
    gru, lngru            GRU, with layer normalisation

    addition     "12+345" to "357", character by character, as at keras.io
    characters   the next character of the King James Bible
    long_memory  the sum of two marked ones of 200 numbers
    verses       which of ten books a verse is from; lengths differ, so that
                 bnlstm has no part in it
    forecast     a chaotic series (Mackey and Glass) 50 steps ahead

All of them are trained by Adam, with gradients clipped to a norm of 1.
"""

import argparse
import functools
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags
from common.errors import InputError

if TYPE_CHECKING:
    from common import runs

KINDS = ("lstm", "lnlstm", "gru", "lngru", "bnlstm")
# Epochs, batch size, units, learning rate, examples.
TASKS = {
    "addition": (14, 128, 96, 3e-3, 40_000),
    "characters": (12, 32, 80, 3e-3, 8_000),
    "long_memory": (20, 50, 32, 3e-3, 10_000),
    "verses": (10, 64, 64, 1e-3, 20_000),
    "forecast": (20, 64, 48, 3e-3, 10_000),
}
_SIZES = ("epochs", "batch_size", "units", "learning_rate", "examples")


def procedure(args: Namespace) -> "runs.Procedure":
    """What the script does, imported when the flags are known to be right."""
    import everyday_task

    return everyday_task.procedure(args)


def _check(task: str, args: Namespace) -> None:
    """Refuses what does not go together."""
    flags.check_batch_statistics(args, ("bnlstm",))
    if args.data != "embedded":
        raise InputError(
            "the data are generated or in a package; expected --data embedded, "
            f"received {args.data}"
        )
    if args.task != task:
        raise InputError(f"--task {args.task} is not that of everyday-{task}")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add_gain(parser)
    flags.add_counts(
        parser, examples="how many there are, a twelfth of them to test"
    )
    parser.add_argument(
        "--task", choices=TASKS, help=f"default: {next(iter(TASKS))}"
    )


def _experiment(task: str) -> cli.Experiment:
    return cli.Experiment(
        name=f"{Path(__file__).stem}-{task}",
        description=__doc__,
        kinds=KINDS[:-1] if task == "verses" else KINDS,
        default_kind="lnlstm",
        without_gain=("lstm", "gru"),
        presets={
            "quick": {
                "data": "embedded",
                "task": task,
                **dict(zip(_SIZES, TASKS[task], strict=True)),
            }
        },
        smoke={"epochs": 2, "units": 8, "examples": 480},
        add_arguments=_add_arguments,
        check=functools.partial(_check, task),
        procedure=procedure,
    )


EXPERIMENTS = {task: _experiment(task) for task in TASKS}
EXPERIMENT = next(iter(EXPERIMENTS.values()))  # Without --task.


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--task", nargs="?")
    argv = sys.argv[1:] if argv is None else argv
    task = parser.parse_known_args(argv)[0].task
    # Where there is none of that name, the flags of the usual one say so.
    return cli.run(EXPERIMENTS.get(task, EXPERIMENT), argv)


if __name__ == "__main__":
    ending.execute(main)
