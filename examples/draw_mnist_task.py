"""Data, training and samples of `draw_mnist.py`."""

from argparse import Namespace
from pathlib import Path

import draw_mnist_model
import keras
import numpy as np
from common import callbacks, devices, plotting, runs, training
from common.datasets import binarized_mnist, streams
from common.errors import InputError

EVALUATION_BATCH = 128

# Drawn by the trained model.
SAMPLES = 8


def load_data(args: Namespace) -> binarized_mnist.Images:
    """Loads binary digits, a few of them for --smoke."""
    images = binarized_mnist.load(args)
    return images.first(256, 128) if args.smoke else images


def check(args: Namespace, images: binarized_mnist.Images) -> None:
    """Refuses sizes that the data do not allow."""
    examples = len(images.train)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training images"
        )
    training.check_evaluate_every(args, examples // args.batch_size)
    devices.held_out(args, len(images.test), EVALUATION_BATCH)


def make_task(args: Namespace, images: binarized_mnist.Images) -> training.Task:
    """Compiles the model, whose loss is the variational bound in nats."""
    _, height, width = images.train.shape
    learnt = training.learnt(args, images)
    x = learnt.train.reshape(len(learnt.train), -1)

    def evaluated(part):
        tested, batch = devices.held_out(args, len(part.test), EVALUATION_BATCH)
        test_x = part.test[:tested].reshape(tested, -1)
        return streams.in_order((test_x, test_x), batch)

    model = draw_mnist_model.build_model(
        args.norm,
        args.units,
        height,
        width,
        args.glimpses,
        args.latent,
        args.read_size,
        args.write_size,
        args.gain,
        args.seed,
    )
    updates_per_pass = len(x) // args.batch_size
    model.compile(
        keras.optimizers.Adam(args.learning_rate),
        draw_mnist_model.pixel_nll,
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    return training.Task(
        model,
        lambda update: streams.shuffled(
            (x, x), args.batch_size, args.seed, update
        ),
        updates_per_pass,
        evaluated(images),
        evaluated(learnt) if args.tune else None,
    )


def train(
    args: Namespace, images: binarized_mnist.Images, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind; draws samples.png."""
    task = make_task(args, images)
    history = task.fit(folder, args)
    shape = (SAMPLES, args.glimpses, args.latent)
    noise = np.random.default_rng(args.seed).normal(size=shape)
    canvases = task.model.get_layer("draw").generate(np.float32(noise))
    canvases = keras.ops.convert_to_numpy(canvases)
    # As many columns as can be told apart.
    columns = np.linspace(0, args.glimpses - 1, min(12, args.glimpses))
    columns = columns.round().astype(int)
    plotting.images(
        canvases[:, columns],
        [str(column + 1) for column in columns],
        "canvas after so many glimpses",
        folder / "samples.png",
    )
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {
        "train_bound_nats": last["loss"],
        "test_bound_nats": end["val_loss"],
        "test_kl_nats": end["val_kl"],
        "end_updates": end["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def describe(args: Namespace, images: binarized_mnist.Images) -> str:
    """What the images are, and how many."""
    names = {
        "embedded": "scikit-learn's digits",
        "tfds": "Larochelle's binarised MNIST",
    }
    name = names.get(args.data, f"{Path(args.data).name}, binarised")
    count, height, width = training.learnt(args, images).train.shape
    return (
        f"{name}, {height} x {width}, {count:,} training and "
        f"{len(images.test):,} test images"
    )


def floors(
    _: Namespace, images: binarized_mnist.Images
) -> dict[str, dict[str, float]]:
    """The nats of pixels that know nothing, and that know how often each is 1.

    The bounds of models that use no latent variable.
    """
    black = images.train.mean(axis=0).clip(1e-4, 1 - 1e-4)
    test = images.test
    nll = -(test * np.log(black) + (1 - test) * np.log(1 - black))
    pixels = black.size
    return {
        "chance": {"test_bound_nats": pixels * float(np.log(2))},
        "mean image": {
            "test_bound_nats": float(nll.sum(axis=(1, 2)).mean()),
        },
    }


def untrained(
    args: Namespace, images: binarized_mnist.Images
) -> dict[str, float]:
    """The bound of a model as it starts."""
    row = make_task(args, images).evaluate(args)
    return {"test_bound_nats": row["val_loss"], "test_kl_nats": row["val_kl"]}


RACE = plotting.Panel("test bound", lambda row: row["val_loss"])

PROCEDURE = runs.Procedure(
    load_data=load_data,
    make_task=make_task,
    train=train,
    check=check,
    panels=(
        plotting.Panel("training bound (nats)", lambda row: row["loss"]),
        plotting.Panel("test bound (nats)", lambda row: row["val_loss"]),
    ),
    columns={
        "training bound (nats)": "train_bound_nats",
        "test bound (nats)": "test_bound_nats",
        "of it KL": "test_kl_nats",
    },
    race=RACE,
    describe=describe,
    floors=floors,
    untrained=untrained,
    held_out=binarized_mnist.Images.held_out,
)
