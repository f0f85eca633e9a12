"""Data, training and tests of `order_embeddings.py`."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import order_embeddings_model as parts
from common import (
    baselines,
    callbacks,
    devices,
    plotting,
    ranking,
    runs,
    training,
)
from common.datasets import captions
from common.errors import InputError

EVALUATION_BATCH = 100


def load_data(args: Namespace) -> captions.Captions:
    """Loads captions and features, a few of them for --smoke."""
    data = captions.load(args)
    if not args.smoke:
        return data
    return data._replace(
        train=data.train.first(256),
        dev=data.dev.first(args.fold),
        test=data.test.first(ranking.FOLDS * args.fold),
    )


def check(args: Namespace, data: captions.Captions) -> None:
    """Refuses sizes that the data or the loss do not allow."""
    images = len(data.train.features)
    if args.batch_size > images:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {images} "
            "training images"
        )
    # A device with one pair of the batch has no wrong ones.
    least = 2 * devices.count(args)
    if args.batch_size < least:
        raise InputError(
            f"--batch-size {args.batch_size} leaves a device no wrong pairs to "
            f"learn from; {least} is the least"
        )
    for name, split in (("dev", data.dev), ("test", data.test)):
        if len(split.features) < args.fold:
            raise InputError(
                f"the {len(split.features)} {name} images are fewer than the "
                f"{args.fold} of --fold"
            )
    training.check_evaluate_every(args, images // args.batch_size)
    devices.held_out(args, captions.EACH * args.fold, EVALUATION_BATCH)


def make_task(args: Namespace, data: captions.Captions) -> training.Task:
    """Compiles the model, whose loss is summed over a batch."""
    words, features = data.train
    model = parts.build_model(
        args.norm,
        args.units,
        len(data.vocabulary),
        words.shape[1],
        features.shape[1],
        args.word_units,
        args.gain,
        args.word_scale,
    )
    similarity = parts.similarity_of(args.norm)
    updates_per_pass = len(features) // args.batch_size
    dev = data.dev.first(args.fold)
    tested, batch = devices.held_out(args, len(dev.words), EVALUATION_BATCH)
    model.compile(
        # Each gradient by itself is clipped.
        keras.optimizers.Adam(args.learning_rate, clipnorm=2.0),
        parts.ContrastiveLoss(similarity, args.margin),
        metrics=[parts.BatchRecall(similarity)],
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    return training.Task(
        model,
        lambda update: data.train.shuffled(args.batch_size, args.seed, update),
        updates_per_pass,
        dev.in_order(batch, tested),
        vocabulary=data.vocabulary,
    )


Embed = Callable[[captions.Split], tuple[np.ndarray, np.ndarray]]


def embedder(model: keras.Model, args: Namespace) -> Embed:
    """Makes a function to embeddings of captions (5 N, U) and images (N, U)."""
    # Without what `compile` made of the other.
    encoder = keras.Model(model.inputs, model.output)
    sharing = devices.count(args)

    def embed(split):
        # None may be left out: devices that share a batch see some again.
        count = len(split.words)
        padded, batch = devices.held_out(
            args, count + -count % sharing, EVALUATION_BATCH
        )
        both = encoder.predict(split.in_order(batch, padded), verbose=0)
        both = both[:count]
        return both[:, 0], both[:: captions.EACH, 1]

    return embed


def measure(
    args: Namespace,
    data: captions.Captions,
    embed: Embed,
    split: captions.Split,
) -> dict[str, float]:
    """What a search among the images of every fold of a split finds."""
    sentences, images = embed(split)
    score = parts.scorer(parts.similarity_of(args.norm))
    found = ranking.fold_measures(sentences, images, score, args.fold)
    if data.growing:
        found["order_accuracy"] = parts.order_accuracy(sentences, captions.EACH)
    return found


def tested(args: Namespace, data: captions.Captions) -> captions.Split:
    """The test images that make whole folds, five at most."""
    folds = min(ranking.FOLDS, len(data.test.features) // args.fold)
    return data.test.first(folds * args.fold)


class Validation(keras.callbacks.Callback):
    """Adds what a search among the validation images finds to the logs.

    Attributes:
        best_recall_sum: the greatest sum of recalls so far.
    """

    def __init__(self, measure: Callable[[], dict[str, float]]):
        super().__init__()
        self.measure = measure
        self.best_recall_sum = 0.0

    def on_epoch_end(self, epoch, logs=None):
        found = self.measure()
        total = found["recall_sum"] = ranking.recall_sum(found)
        self.best_recall_sum = max(self.best_recall_sum, total)
        found["best_recall_sum"] = self.best_recall_sum
        logs.update({f"val_{name}": value for name, value in found.items()})


def train(
    args: Namespace, data: captions.Captions, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains one kind; tests the model that was best in the validation."""
    dev = data.dev.first(args.fold)
    task = make_task(args, data)
    embed = embedder(task.model, args)
    history = task.fit(
        folder,
        args,
        monitor="val_recall_sum",
        mode="max",
        extra_callbacks=[Validation(lambda: measure(args, data, embed, dev))],
    )
    best = keras.models.load_model(folder / "model.keras", compile=False)
    metrics = measure(args, data, embedder(best, args), tested(args, data))
    last = history.rows[-1]
    row = next(
        row
        for row in history.rows
        if row["val_recall_sum"] == last["val_best_recall_sum"]
    )
    metrics |= {
        "folds": len(tested(args, data).features) // args.fold,
        "val_recall_sum": row["val_recall_sum"],
        "best_updates": row["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def describe(args: Namespace, data: captions.Captions) -> str:
    """What the images are, and how many."""
    names = {"embedded": "generated scenes", "tfds": "COCO"}
    name = names.get(args.data, Path(args.data).name)
    return (
        f"{name}, {len(data.train.features):,} training images, searched "
        f"among {args.fold:,}"
    )


def floors(
    args: Namespace, data: captions.Captions
) -> dict[str, dict[str, float]]:
    """Chance, and what the words foresee of an image."""
    found = baselines.of_captions(data, tested(args, data), args.fold)
    if data.growing:
        found["chance"]["order_accuracy"] = 50.0
    return found


def untrained(args: Namespace, data: captions.Captions) -> dict[str, float]:
    """What a model finds as it starts."""
    model = make_task(args, data).model
    training.scale_matrices(model, args.scale)
    return measure(args, data, embedder(model, args), tested(args, data))


def held_out(data: captions.Captions) -> captions.Captions:
    """The data without the test images: those of the validation instead."""
    return data._replace(test=data.dev)


RACE = plotting.Panel("best recall", lambda row: -row["val_best_recall_sum"])

PROCEDURE = runs.Procedure(
    load_data=load_data,
    make_task=make_task,
    train=train,
    check=check,
    panels=[
        plotting.Panel(
            f"validation: image R@{k} (%)",
            lambda row, name=f"val_image_r{k}": row[name],
        )
        for k in ranking.RECALLS
    ],
    columns={
        "caption R@1": "caption_r1",
        "caption R@5": "caption_r5",
        "caption R@10": "caption_r10",
        "caption mean r": "caption_mean_rank",
        "image R@1": "image_r1",
        "image R@5": "image_r5",
        "image R@10": "image_r10",
        "image mean r": "image_mean_rank",
        "updates to its best": "best_updates",
    },
    race=RACE,
    progress=plotting.UPDATES,
    describe=describe,
    floors=floors,
    untrained=untrained,
    held_out=held_out,
    criterion=plotting.Panel("minus best recall", RACE.value),
)

# Which caption is the more general one is known of scenes alone.
OF_SCENES = dataclasses.replace(
    PROCEDURE,
    columns={**PROCEDURE.columns, "order accuracy (%)": "order_accuracy"},
)
