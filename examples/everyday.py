"""Does layer normalisation help with tasks such as mine?

Common tasks (--task), each with these layers to choose from:

    lstm, lnlstm, bnlstm  LSTM, with layer or with batch normalisation
    gru, lngru            GRU, with layer normalisation

    addition     "12+345" to "357", character by character, as at keras.io
    characters   the next character of the King James Bible
    long_memory  the sum of two marked numbers out of 200
    verses       the book (of ten) that a verse is from; without bnlstm,
                 because lengths differ
    forecast     a chaotic series (Mackey and Glass) 50 steps ahead
    spelling     the sounds of an English word (CMU Pronouncing Dictionary)
    movements    the exercise that the wearer of a watch does
    chorales     the next chord of a chorale of Bach

The data of the last three are in packages, and their lengths differ too:
pip install '.[evidence]'.

All models are trained by Adam, with gradients clipped to a norm of 1.
"""

import argparse
import dataclasses
import math
import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import claims, cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment
from common.measures import UPDATES, Panel

KINDS = ("lstm", "lnlstm", "gru", "lngru", "bnlstm")
# Epochs, batch size, units, learning rate, examples.
TASKS = {
    "addition": (14, 128, 96, 3e-3, 40_000),
    "characters": (12, 32, 80, 3e-3, 8_000),
    "long_memory": (20, 50, 32, 3e-3, 10_000),
    "verses": (10, 64, 64, 1e-3, 20_000),
    "forecast": (20, 64, 48, 3e-3, 10_000),
    "spelling": (10, 64, 128, 3e-3, 60_000),
    "movements": (20, 32, 64, 3e-3, 2_000),
    "chorales": (60, 16, 128, 3e-3, 400),
}
# Their data are in packages; see `common.datasets.practice`.
PACKAGED = ("spelling", "movements", "chorales")
# Batch statistics of a step need sequences of one length.
PADDED = ("verses", *PACKAGED)
_SIZES = ("epochs", "batch_size", "units", "learning_rate", "examples")
# Tasks with tokens, which have vectors.
WORDS = ("addition", "characters", "verses", "spelling")
# The largest number of steps over which a task needs memory.
MEMORY = {
    "addition": 11,
    "characters": 64,
    "long_memory": 200,
    "verses": 40,
    "forecast": 64,
    "spelling": 24,
    "movements": 60,
    "chorales": 64,
}
NAMES = {
    "addition": "sums of numbers",
    "characters": "pieces of the King James Bible",
    "long_memory": "sums of two of 200 numbers",
    "verses": "verses of the King James Bible",
    "forecast": "windows of Mackey-Glass series",
    "spelling": "words of the CMU Pronouncing Dictionary",
    "movements": "movements of a watch",
    "chorales": "chorales of Bach",
}
GRADIENT = Panel(
    "norm of the gradient", lambda row: row["gradient_norm"], log=True
)


def error(row: Mapping[str, float]) -> float:
    """The test error of a row of the history: in percent, or an RMSE."""
    if "val_accuracy" in row:
        return 100 * (1 - row["val_accuracy"])
    return math.sqrt(row["val_loss"])


def mean_metrics(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The means of metrics that several models have."""
    return {
        key: statistics.fmean(own[key] for own in found) for key in found[0]
    }


class Everyday(Experiment):
    """One of the tasks, with `sequences.Sequences`."""

    embedded = "the data of --task, the only choice here"
    evaluation_batch = 400
    shown = ("loss", "val_loss", "val_accuracy")
    fresh_statistics = True
    training_metric = ("train_loss", "loss")

    def add_arguments(self, parser):
        flags.add_counts(
            parser, examples="number of examples; a twelfth is for testing"
        )
        parser.add_argument(
            "--task",
            choices=TASKS,
            help=f"the task (default: {next(iter(TASKS))})",
        )

    def check_flags(self, args):
        super().check_flags(args)
        if args.data != "embedded":
            raise InputError(
                "the data are generated or in a package; expected --data "
                f"embedded, received {args.data}"
            )
        if f"{self.script}-{args.task}" != self.name:
            _, _, own = self.name.partition("-")
            raise InputError(f"--task: expected {own}, received {args.task}")

    def load_data(self, args):
        from common.datasets import practice, sequences

        module = practice if args.task in PACKAGED else sequences
        return getattr(module, args.task)(args.examples)

    def sizes(self, data):
        return len(data.x), len(data.test_x)

    def make_task(self, args, data):
        import everyday_model

        data = data.fold(args.seed)
        model = everyday_model.build_model(
            args.norm,
            args.units,
            args.task,
            data.x.shape[1],
            len(data.tokens) if data.tokens else None,
            everyday_model.outputs(args.task, data),
            args.gain,
            args.forget_steps,
        )
        optimizer = everyday_model.MeasuredAdam(
            args.learning_rate, global_clipnorm=1.0
        )
        loss, metrics = everyday_model.measured(args.task, data)
        task = self.compile(
            args,
            data,
            model,
            lambda part: (part.x, part.y),
            lambda part: (part.test_x, part.test_y),
            optimizer=optimizer,
            loss=loss,
            metrics=metrics,
            # XLA's random numbers take long on a CPU: without it an epoch of
            # chorales takes a fifth of the time.
            xla=args.task != "chorales",
        )
        norm = everyday_model.GradientNorm(optimizer)
        return dataclasses.replace(
            task,
            vocabulary=data.tokens,
            extra_callbacks=[norm, *task.extra_callbacks],
        )

    def measure_row(self, row):
        return {"test_loss": row["val_loss"], "test_error": error(row)}

    def floors(self, args, data):
        """Constant predictions, and linear models or counts.

        The mean over the seeds' test sets, as for untrained models.
        """
        from common import baselines

        of_folds = [
            baselines.of_sequences(args.task, data.fold(seed))
            for seed in range(data.folds)
        ]
        if data.folds == 1:
            return of_folds[0]
        return {
            # Without the number of examples, which differs.
            name.partition(" of ")[0]: mean_metrics(own)
            for name, *own in zip(
                of_folds[0],
                *(found.values() for found in of_folds),
                strict=True,
            )
        }

    def untrained(self, args, data):
        seeds = range(args.seed, args.seed + data.folds)
        plans = [Namespace(**vars(args) | {"seed": seed}) for seed in seeds]
        return mean_metrics(
            [super(Everyday, self).untrained(p, data) for p in plans]
        )

    def data_name(self, args):
        return NAMES[args.task]


def _experiment(task: str) -> Everyday:
    measured, wrong, _ = claims.EVERYDAY[task]
    loss = Panel(f"test {measured}", lambda row: row["val_loss"], log=True)
    return Everyday(
        name=f"{Path(__file__).stem}-{task}",
        description=__doc__,
        kinds=KINDS[:-1] if task in PADDED else KINDS,
        default_kind="lnlstm",
        without_gain=("lstm", "gru"),
        batch_kinds=("bnlstm",),
        presets={
            "quick": {
                "data": "embedded",
                "task": task,
                **dict(zip(_SIZES, TASKS[task], strict=True)),
            }
        },
        smoke={"epochs": 2, "units": 8, "examples": 480},
        panels=(
            loss,
            # Almost all sums are right at the end.
            Panel(wrong, error, log=measured == "MSE" or task == "addition"),
            GRADIENT,
        ),
        columns={
            f"training {measured}": "train_loss",
            loss.label: "test_loss",
            wrong: "test_error",
        },
        memory=lambda args: MEMORY[args.task],
        race=loss,
        folds=claims.PERSONS if task == "movements" else None,
        embeddings="normal" if task in WORDS else None,
        progress=UPDATES,
        examples=("training examples", "test"),
    )


EXPERIMENTS = {task: _experiment(task) for task in TASKS}
EXPERIMENT = next(iter(EXPERIMENTS.values()))  # Without --task.


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--task", nargs="?", help="the task")
    argv = sys.argv[1:] if argv is None else argv
    task = parser.parse_known_args(argv)[0].task
    # For an unknown task, the flags of the usual experiment raise the error.
    return cli.run(EXPERIMENTS.get(task, EXPERIMENT), argv)


if __name__ == "__main__":
    ending.execute(main)
