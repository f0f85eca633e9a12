"""What the image classification experiments have in common."""

import functools
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import (
    baselines,
    callbacks,
    devices,
    plotting,
    runs,
    training,
)
from common.datasets import mnist, streams
from common.errors import InputError

EVALUATION_BATCH = 400
# Whose statistics batch normalisation averages before an evaluation.
AVERAGED_EXAMPLES = 3_200


def logits(x: Any) -> Any:
    """The outputs `x` in float32, also where the layers compute in less."""
    return keras.layers.Activation("linear", dtype="float32")(x)


def some(args: Namespace, data: mnist.Digits) -> mnist.Digits:
    """The images that --examples leaves.

    Raises:
        InputError: if there are fewer.
    """
    if args.examples is None:
        return data
    if args.examples > len(data.train_labels):
        raise InputError(
            f"--examples {args.examples} is more than the "
            f"{len(data.train_labels)} training images"
        )
    return data.first(args.examples, len(data.test_labels))


def check(args: Namespace, data: mnist.Digits) -> None:
    """Refuses batch sizes that the data do not allow."""
    examples = len(data.train_labels)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training images"
        )
    training.check_evaluate_every(args, examples // args.batch_size)
    devices.held_out(args, len(data.test_labels), EVALUATION_BATCH)


def make_task(
    args: Namespace,
    data: mnist.Digits,
    prepare: Callable[[np.ndarray], np.ndarray],
    build: Callable[[tuple[int, ...]], keras.Model],
    optimizer: keras.optimizers.Optimizer,
    xla: bool = True,
) -> training.Task:
    """Compiles a classifier of images.

    Args:
        args: the flags.
        data: images and labels.
        prepare: from images to the model's inputs.
        build: from the shape of an input to the model; it returns logits.
        optimizer: the optimizer.
        xla: whether the model gains from `training.speed`.
    """
    learnt = training.learnt(args, data)
    x = prepare(learnt.train_images)

    def evaluated(part):
        tested, batch = devices.held_out(
            args, len(part.test_labels), EVALUATION_BATCH
        )
        images = prepare(part.test_images[:tested])
        return streams.in_order((images, part.test_labels[:tested]), batch)

    updates_per_pass = len(x) // args.batch_size
    model = build(x.shape[1:])
    updates = args.evaluate_every or updates_per_pass
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        **(training.speed(updates) if xla else {}),
    )

    def batches(update):
        return streams.shuffled(
            (x, learnt.train_labels), args.batch_size, args.seed, update
        )

    fresh = []
    if args.norm == "batch":
        number = -(-AVERAGED_EXAMPLES // args.batch_size)
        number = min(number, updates_per_pass)
        fresh = [callbacks.FreshStatistics(batches(0), number)]
    return training.Task(
        model,
        batches,
        updates_per_pass,
        evaluated(data),
        evaluated(learnt) if args.tune else None,
        extra_callbacks=fresh,
    )


def procedure(
    load_data: Callable[[Namespace], mnist.Digits],
    make_task: Callable[[Namespace, mnist.Digits], training.Task],
    log: bool,
    race: bool = True,
) -> runs.Procedure:
    """The procedure of a script that trains a classifier.

    Args:
        load_data: as of `runs.Procedure`.
        make_task: as of `runs.Procedure`.
        log: whether losses and errors are drawn on logarithmic axes.
        race: whether the table has the updates to the loss of the first kind.
    """
    return runs.Procedure(
        load_data=load_data,
        make_task=make_task,
        train=functools.partial(_train, make_task),
        panels=(
            plotting.Panel("training NLL (nats)", lambda r: r["loss"], log=log),
            plotting.Panel("test error (%)", error, log=log),
        ),
        columns={
            "training NLL": "train_nll",
            "test NLL": "test_nll",
            "test error (%)": "test_error_percent",
        },
        check=check,
        race=RACE if race else None,
        describe=describe,
        floors=_floors,
        untrained=functools.partial(_untrained, make_task),
        held_out=mnist.Digits.held_out,
    )


def describe(args: Namespace, data: mnist.Digits) -> str:
    """What the images are, and how many."""
    names = {"embedded": "scikit-learn's digits", "tfds": args.data_set}
    name = names.get(args.data, Path(args.data).name)
    count, height, width = training.learnt(args, data).train_images.shape[:3]
    return (
        f"{name}, {height} x {width}, {count:,} training and "
        f"{len(data.test_labels):,} test images"
    )


def _floors(_: Namespace, data: mnist.Digits) -> dict[str, dict[str, float]]:
    x, y, test_x, test_y = data
    return baselines.of_classes((x, y), (test_x, test_y))


def _untrained(
    make_task: Callable[[Namespace, mnist.Digits], training.Task],
    args: Namespace,
    data: mnist.Digits,
) -> dict[str, float]:
    row = make_task(args, data).evaluate(args)
    return {"test_nll": row["val_loss"], "test_error_percent": error(row)}


def _train(
    make_task: Callable[[Namespace, mnist.Digits], training.Task],
    args: Namespace,
    data: mnist.Digits,
    folder: Path,
) -> tuple[dict[str, float], callbacks.History]:
    history = make_task(args, data).fit(folder, args)
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {
        "train_nll": last["loss"],
        "test_nll": end["val_loss"],
        "test_error_percent": error(end),
        "end_updates": end["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def error(row: Mapping[str, float]) -> float:
    """The test error of a row of the history, in percent."""
    return 100 * (1 - row["val_accuracy"])


RACE = plotting.Panel("training NLL", lambda row: row["loss"])
