"""Permutation invariant MNIST: section 6.6 and figure 6 of the paper.

A classifier with two hidden layers learns handwritten digits from pixels
without knowing how they lie together, in large and in small batches:

    none   no normalisation
    layer  layer normalisation of the summed inputs of both hidden layers
    batch  batch normalisation of the summed inputs of all three layers

The paper's claim: layer normalisation is robust to the batch size, and at
batch size 4 it trains faster than batch normalisation.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import keras
from common import callbacks, cli, plotting, training
from common.datasets import mnist, streams
from common.errors import InputError
from keras import layers

import keras_ln

KINDS = ("none", "layer", "batch")

EVALUATION_BATCH = 400


def build_model(
    norm: str = "layer",
    units: int = 1000,
    pixels: int = 784,
    classes: int = 10,
    unbiased: bool = False,
) -> keras.Model:
    """Builds the classifier; its outputs are logits.

    Args:
        norm: one of `KINDS`.
        units: the width of both hidden layers.
        pixels: the inputs.
        classes: the outputs.
        unbiased: whether batch normalisation divides by n - 1.
    """

    def normalize(x):  # (B, features)
        if norm == "layer":
            return keras_ln.LayerNormalization()(x)
        if norm == "batch":
            return keras_ln.BatchNormalization(unbiased=unbiased)(x)
        return x

    # Batch normalisation cancels a bias before it.
    use_bias = norm != "batch"
    inputs = x = keras.Input((pixels,))
    for _ in range(2):
        x = normalize(layers.Dense(units, use_bias=use_bias)(x))
        x = layers.Activation("relu")(x)
    x = layers.Dense(classes, use_bias=use_bias)(x)
    if norm == "batch":
        x = normalize(x)
    # The loss wants float32 also where the layers compute in less.
    outputs = layers.Activation("linear", dtype="float32")(x)
    return keras.Model(inputs, outputs)


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the digits, a few of them for --smoke."""
    digits = mnist.load(args)
    return digits.first(1408, 384) if args.smoke else digits


def check(args: Namespace, digits: mnist.Digits) -> None:
    """Refuses batch sizes that the data or the kind do not allow."""
    examples = len(digits.train_labels)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training images"
        )
    if args.norm == "batch" and args.batch_size < 2:
        raise InputError("--norm batch needs a --batch-size of at least 2")
    training.check_evaluate_every(args, examples // args.batch_size)
    tested = len(digits.test_labels)
    training.check_even(args, "test images", tested % EVALUATION_BATCH)


def train(
    args: Namespace, digits: mnist.Digits, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind."""
    x, y, test_x, test_y = digits
    x, test_x = (images.reshape(len(images), -1) for images in (x, test_x))
    updates_per_pass = len(x) // args.batch_size
    model = build_model(
        args.norm, args.units, x.shape[1], unbiased=args.batch_size <= 4
    )
    model.compile(
        keras.optimizers.Adam(args.learning_rate),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    history = training.fit(
        model,
        lambda update: streams.shuffled(
            (x, y), args.batch_size, args.seed, update
        ),
        folder,
        args,
        updates_per_pass=updates_per_pass,
        validation_data=streams.in_order((test_x, test_y), EVALUATION_BATCH),
    )
    last = history.rows[-1]
    metrics = {
        "train_nll": last["loss"],
        "test_nll": last["val_loss"],
        "test_error_percent": _error(last),
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def _error(row) -> float:
    return 100 * (1 - row["val_accuracy"])


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 30,
            "batch_size": 128,
            "units": 256,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "epochs": 60,
            "batch_size": 128,
            "units": 1000,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 32},
    load_data=load_data,
    train=train,
    check=check,
    compared={"batch_size": (128, 4)},
    panels=(
        plotting.Panel("training NLL (nats)", lambda r: r["loss"], log=True),
        plotting.Panel("test error (%)", _error, log=True),
    ),
    columns={
        "training NLL": "train_nll",
        "test NLL": "test_nll",
        "test error (%)": "test_error_percent",
    },
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
