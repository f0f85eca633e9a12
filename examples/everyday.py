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
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import claims, cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment
from common.measures import UPDATES, Panel

if TYPE_CHECKING:
    from common import baselines, training
    from common.datasets import sequences

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
NAMES = {
    "addition": "sums of numbers",
    "characters": "pieces of the King James Bible",
    "long_memory": "sums of two of 200 numbers",
    "verses": "verses of the King James Bible",
    "forecast": "windows of Mackey-Glass series",
}


GRADIENT = Panel(
    "norm of the gradient", lambda row: row["gradient_norm"], log=True
)


def error(row: Mapping[str, float]) -> float:
    """The test error of a row of the history: in percent, or an RMSE."""
    if "val_accuracy" in row:
        return 100 * (1 - row["val_accuracy"])
    return math.sqrt(row["val_loss"])


class Everyday(Experiment):
    """One of the tasks."""

    evaluation_batch = 400
    training_metric = ("train_loss", "loss")

    def add_arguments(self, parser: ArgumentParser) -> None:
        flags.add_gain(parser)
        flags.add_counts(
            parser, examples="how many there are, a twelfth of them to test"
        )
        parser.add_argument(
            "--task", choices=TASKS, help=f"default: {next(iter(TASKS))}"
        )

    def check_flags(self, args: Namespace) -> None:
        super().check_flags(args)
        if args.data != "embedded":
            raise InputError(
                "the data are generated or in a package; expected --data "
                f"embedded, received {args.data}"
            )
        if f"{self.script}-{args.task}" != self.name:
            raise InputError(f"--task {args.task} is not that of {self.name}")

    def load_data(self, args: Namespace) -> "sequences.Sequences":
        from common.datasets import sequences

        return getattr(sequences, args.task)(args.examples)

    def sizes(self, data: "sequences.Sequences") -> tuple[int, int]:
        return len(data.x), len(data.test_x)

    def make_task(
        self, args: Namespace, data: "sequences.Sequences"
    ) -> "training.Task":
        import everyday_model
        import keras
        from common import callbacks, devices, training
        from common.datasets import streams

        learnt = training.learnt(args, data)
        numbers = data.y.dtype.kind == "f"
        model = everyday_model.build_model(
            args.norm,
            args.units,
            args.task,
            data.x.shape[1],
            len(data.tokens) if data.tokens else None,
            1 if numbers else int(max(data.y.max(), data.test_y.max())) + 1,
            args.gain,
        )
        optimizer = everyday_model.MeasuredAdam(
            args.learning_rate, global_clipnorm=1.0
        )
        right = (
            keras.metrics.MeanMetricWrapper(everyday_model.whole, "accuracy")
            if args.task == "addition"
            else keras.metrics.SparseCategoricalAccuracy("accuracy")
        )
        updates_per_pass = len(learnt.x) // args.batch_size
        model.compile(
            optimizer,
            keras.losses.MeanSquaredError()
            if numbers
            else keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[] if numbers else [right],
            **training.speed(args.evaluate_every or updates_per_pass),
        )

        def batches(update):
            return streams.shuffled(
                (learnt.x, learnt.y), args.batch_size, args.seed, update
            )

        def evaluated(part):
            tested, batch = devices.held_out(
                args, len(part.test_x), self.evaluation_batch
            )
            return streams.in_order(
                (part.test_x[:tested], part.test_y[:tested]), batch
            )

        extra = [everyday_model.GradientNorm(optimizer)]
        if args.norm in self.batch_kinds:
            extra.append(
                callbacks.FreshStatistics(
                    batches(0), args.batch_size, updates_per_pass
                )
            )
        return training.Task(
            model,
            batches,
            updates_per_pass,
            evaluated(data),
            evaluated(learnt) if args.tune else None,
            data.tokens,
            extra,
        )

    def measure_row(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"test_loss": row["val_loss"], "test_error": error(row)}

    def floors(
        self, args: Namespace, data: "sequences.Sequences"
    ) -> "baselines.Floors":
        """What says the same to all, and what is linear or counted."""
        from common import baselines

        return baselines.of_sequences(args.task, data)

    def data_name(self, args: Namespace) -> str:
        return NAMES[args.task]


def _experiment(task: str) -> Everyday:
    measured, wrong, _ = claims.EVERYDAY[task]
    loss = Panel(f"test {measured}", lambda row: row["val_loss"], log=True)
    return Everyday(
        name=f"{Path(__file__).stem}-{task}",
        description=__doc__,
        kinds=KINDS[:-1] if task == "verses" else KINDS,
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
            Panel(wrong, error, log=measured == "MSE"),
            Panel(
                "norm of the gradient", lambda r: r["gradient_norm"], log=True
            ),
        ),
        columns={
            f"training {measured}": "train_loss",
            loss.label: "test_loss",
            wrong: "test_error",
        },
        race=loss,
        progress=UPDATES,
        examples=("training examples", "test"),
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
