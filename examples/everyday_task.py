"""Training of `everyday.py`, and what is measured."""

import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import everyday_model
import keras
import numpy as np
from common import (
    baselines,
    callbacks,
    claims,
    classifiers,
    devices,
    plotting,
    runs,
    training,
)
from common.datasets import plain_text, sequences, streams
from common.errors import InputError

# The metrics that floors have too.
COLUMNS = ("test_loss", "test_error")
NAMES = {
    "addition": "sums of numbers",
    "characters": "pieces of the King James Bible",
    "long_memory": "sums of two of 200 numbers",
    "verses": "verses of the King James Bible",
    "forecast": "windows of Mackey-Glass series",
}


class GradientNorm(keras.callbacks.Callback):
    """Adds the mean norm of the gradients since the last evaluation."""

    def __init__(self, optimizer: everyday_model.MeasuredAdam):
        super().__init__()
        self.optimizer = optimizer

    def on_epoch_begin(self, epoch, logs=None):
        self.optimizer.norms.assign(0.0)

    def on_epoch_end(self, epoch, logs=None):
        norms = float(keras.ops.convert_to_numpy(self.optimizer.norms))
        logs["gradient_norm"] = norms / self.params["steps"]


def load_data(args: Namespace) -> sequences.Sequences:
    """Loads the examples of the task."""
    return getattr(sequences, args.task)(args.examples)


def check(args: Namespace, data: sequences.Sequences) -> None:
    """Refuses batch sizes that the data do not allow."""
    if args.batch_size > len(data.x):
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {len(data.x)} "
            "training examples"
        )
    training.check_evaluate_every(args, len(data.x) // args.batch_size)
    devices.held_out(args, len(data.test_x), classifiers.EVALUATION_BATCH)


def is_numbers(data: sequences.Sequences) -> bool:
    """Whether numbers are foreseen, not tokens or classes."""
    return data.y.dtype.kind == "f"


def make_task(args: Namespace, data: sequences.Sequences) -> training.Task:
    """Compiles the model of the task."""
    learnt = training.learnt(args, data)
    numbers = is_numbers(data)
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
            args, len(part.test_x), classifiers.EVALUATION_BATCH
        )
        return streams.in_order(
            (part.test_x[:tested], part.test_y[:tested]), batch
        )

    extra: list[keras.callbacks.Callback] = [GradientNorm(optimizer)]
    if args.norm == "bnlstm":
        number = -(-classifiers.AVERAGED_EXAMPLES // args.batch_size)
        number = min(number, updates_per_pass)
        extra.append(callbacks.FreshStatistics(batches(0), number))
    return training.Task(
        model,
        batches,
        updates_per_pass,
        evaluated(data),
        evaluated(learnt) if args.tune else None,
        data.tokens,
        extra,
    )


def error(row: Mapping[str, float]) -> float:
    """The test error of a row of the history: in percent, or an RMSE."""
    if "val_accuracy" in row:
        return 100 * (1 - row["val_accuracy"])
    return math.sqrt(row["val_loss"])


def train(
    args: Namespace, data: sequences.Sequences, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind."""
    history = make_task(args, data).fit(folder, args)
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {
        "train_loss": last["loss"],
        "test_loss": end["val_loss"],
        "test_error": error(end),
        "end_updates": end["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def untrained(args: Namespace, data: sequences.Sequences) -> dict[str, float]:
    """The losses and errors of a model as it starts."""
    row = make_task(args, data).evaluate(args)
    return {"test_loss": row["val_loss"], "test_error": error(row)}


def floors(args: Namespace, data: sequences.Sequences) -> baselines.Floors:
    """What says the same to all, and what is linear or counted."""
    if is_numbers(data):
        return _of_numbers(data)
    if args.task != "verses":
        return _of_tokens(args, data)
    words = (
        baselines.count_words(x, len(data.tokens))[:, plain_text.UNKNOWN + 1 :]
        for x in (data.x, data.test_x)
    )
    parts = zip(words, (data.y, data.test_y), strict=True)
    return {
        name: dict(zip(COLUMNS, metrics.values(), strict=True))
        for name, metrics in baselines.of_classes(*parts).items()
    }


def _of_numbers(data: sequences.Sequences) -> baselines.Floors:
    from sklearn.linear_model import Ridge

    x, test_x = (part.reshape(len(part), -1) for part in (data.x, data.test_x))
    few = slice(baselines.EXAMPLES)
    model = Ridge().fit(x[few], data.y[few])
    found = {}
    for name, foreseen in (
        ("mean", data.y.mean(axis=0)),
        ("linear regression", model.predict(test_x).reshape(-1, 1)),
    ):
        loss = float(np.mean((data.test_y - foreseen) ** 2))
        found[name] = dict(zip(COLUMNS, (loss, math.sqrt(loss)), strict=True))
    return found


def _of_tokens(args: Namespace, data: sequences.Sequences) -> baselines.Floors:
    """Guesses, and how often a token is at its place or after the last one."""
    after = args.task == "characters"
    given, test_given = (
        x if after else np.indices(y.shape)[1]
        for x, y in ((data.x, data.y), (data.test_x, data.test_y))
    )
    classes = len(data.tokens)
    counts = np.ones((given.max() + 1, classes))
    np.add.at(counts, (given, data.y), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    right = shares.argmax(axis=1)[test_given] == data.test_y
    answers = 1 if after else data.y.shape[1]
    return {
        "chance": {
            "test_loss": math.log(classes),
            "test_error": 100 * (1 - classes**-answers),
        },
        "frequencies": {
            "test_loss": float(-np.log(shares[test_given, data.test_y]).mean()),
            "test_error": 100
            * (1 - float(np.mean(right if after else right.all(axis=1)))),
        },
    }


def procedure(args: Namespace) -> runs.Procedure:
    """What is measured of a task."""
    measured, wrong, _ = claims.EVERYDAY[args.task]
    loss = plotting.Panel(
        f"test {measured}", lambda row: row["val_loss"], log=True
    )
    return runs.Procedure(
        load_data=load_data,
        make_task=make_task,
        train=train,
        panels=(
            loss,
            plotting.Panel(wrong, error, log=measured == "MSE"),
            plotting.Panel(
                "norm of the gradient", lambda r: r["gradient_norm"], log=True
            ),
        ),
        columns={
            f"training {measured}": "train_loss",
            **dict(zip((loss.label, wrong), COLUMNS, strict=True)),
        },
        check=check,
        race=loss,
        progress=plotting.UPDATES,
        describe=describe,
        floors=floors,
        untrained=untrained,
        held_out=sequences.Sequences.held_out,
    )


def describe(args: Namespace, data: sequences.Sequences) -> str:
    """What the examples are, and how many."""
    count = len(training.learnt(args, data).x)
    return (
        f"{NAMES[args.task]}, {count:,} training and {len(data.test_x):,} test"
    )
