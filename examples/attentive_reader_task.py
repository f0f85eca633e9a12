"""Data and training of `attentive_reader.py`."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import attentive_reader_model
import keras
import numpy as np
from common import callbacks, devices, plotting, runs, training
from common.datasets import cloze, streams
from common.errors import InputError

EVALUATION_BATCH = 128


def load_data(args: Namespace) -> cloze.Cloze:
    """Loads questions, a few of them for --smoke."""
    data = cloze.load(args)
    if args.smoke:
        return data._replace(
            train=data.train.first(256), validation=data.validation.first(128)
        )
    return data


def check(args: Namespace, data: cloze.Cloze) -> None:
    """Refuses batch sizes that the data do not allow."""
    examples = len(data.train.answers)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training questions"
        )
    training.check_evaluate_every(args, examples // args.batch_size)
    devices.held_out(args, len(data.validation.answers), EVALUATION_BATCH)


def make_task(args: Namespace, data: cloze.Cloze) -> training.Task:
    """Compiles the model, which learns to name the entity."""
    learnt = training.learnt(args, data)
    model = attentive_reader_model.build_model(
        args.norm,
        args.units,
        data.train.passages.shape[1],
        data.train.queries.shape[1],
        len(data.vocabulary),
        args.dropout,
        args.gain,
        args.momentum,
        args.spread,
        args.seed,
    )
    updates_per_pass = len(learnt.train.answers) // args.batch_size

    def evaluated(part):
        tested, batch = devices.held_out(
            args, len(part.validation.answers), EVALUATION_BATCH
        )
        return streams.in_order(part.validation.first(tested), batch).map(
            lambda passages, queries, answers: ((passages, queries), answers)
        )

    model.compile(
        keras.optimizers.Adam(args.learning_rate, global_clipnorm=10.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    return training.Task(
        model,
        lambda update: cloze.batches(
            learnt, args.batch_size, args.seed, update
        ),
        updates_per_pass,
        evaluated(data),
        evaluated(learnt) if args.tune else None,
        data.vocabulary,
    )


def train(
    args: Namespace, data: cloze.Cloze, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind."""
    history = make_task(args, data).fit(folder, args)
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {
        "train_nll": last["loss"],
        "validation_nll": end["val_loss"],
        "validation_error_percent": 100 * error_rate(end),
        "end_updates": end["updates"],
        "best_validation_error_percent": 100
        * min(map(error_rate, history.rows)),
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def error_rate(row: Mapping[str, float]) -> float:
    """The share of wrong answers to the validation questions."""
    return 1 - row["val_accuracy"]


def describe(args: Namespace, data: cloze.Cloze) -> str:
    """What the questions are, and how many."""
    names = {"embedded": "King James Bible"}
    name = names.get(args.data, Path(args.data).name)
    count, length = training.learnt(args, data).train.passages.shape
    return (
        f"{name}, passages of {length} words, at most "
        f"{args.entities} names, {count:,} training and "
        f"{len(data.validation.answers):,} validation questions"
    )


def floors(_: Namespace, data: cloze.Cloze) -> dict[str, dict[str, float]]:
    """Any name of the passage, and the one that it has most often."""
    found: dict[str, list[float]] = {"chance": [], "most frequent name": []}
    for passage, answer in zip(
        data.validation.passages, data.validation.answers, strict=True
    ):
        counts = np.bincount(passage[data.is_marker(passage)])
        most = counts == counts.max()
        found["chance"].append(1 / np.count_nonzero(counts))
        found["most frequent name"].append(most[answer] / most.sum())
    return {
        name: {"validation_error_percent": 100 * (1 - float(np.mean(right)))}
        for name, right in found.items()
    }


def untrained(args: Namespace, data: cloze.Cloze) -> dict[str, float]:
    """What a model answers as it starts."""
    row = make_task(args, data).evaluate(args)
    return {
        "validation_nll": row["val_loss"],
        "validation_error_percent": 100 * error_rate(row),
    }


RACE = plotting.Panel("validation error", error_rate)

PROCEDURE = runs.Procedure(
    load_data=load_data,
    make_task=make_task,
    train=train,
    check=check,
    panels=(
        plotting.Panel("training NLL (nats)", lambda row: row["loss"]),
        plotting.Panel("validation error rate", error_rate),
    ),
    columns={
        "training NLL": "train_nll",
        "validation NLL": "validation_nll",
        "validation error (%)": "validation_error_percent",
        "best": "best_validation_error_percent",
    },
    race=RACE,
    progress=plotting.UPDATES,
    describe=describe,
    floors=floors,
    untrained=untrained,
    held_out=cloze.Cloze.held_out,
)
