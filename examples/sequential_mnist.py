"""Digits read one pixel after the other: the test of recurrent batch norm.

An LSTM sees the pixels of an image in the usual order, or in one fixed random
order, and names the digit after the last of them (Cooijmans et al., "Recurrent
Batch Normalization", 2016, section 5.1):

    none   LSTM
    batch  BNLSTM, statistics of each time step
    layer  LNLSTM

Their test accuracies on MNIST are 98.9 % without and 99.0 % with batch
normalisation in order, 90.2 % and 95.4 % permuted.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
from common import callbacks, cli, plotting, training
from common.datasets import mnist, streams
from common.errors import InputError
from keras import layers, ops

import keras_ln

KINDS = ("none", "batch", "layer")
ORDERS = ("in-order", "permuted")

EVALUATION_BATCH = 128


def build_model(
    norm: str = "layer",
    units: int = 100,
    steps: int = 784,
    classes: int = 10,
    gain: float | None = None,
    noise: float = 0.1,
) -> keras.Model:
    """Builds the classifier of sequences (B, steps, 1); it returns logits.

    Args:
        norm: one of `KINDS`.
        units: the size of the LSTM.
        steps: the pixels.
        classes: the outputs.
        gain: initial gain of the normalisation; None for the layer's own.
        noise: standard deviation of the initial state of "batch" in
            training. The upper pixels of all images are black: without noise
            the hidden states of a batch would be equal there, and the
            gradient of their normalisation would explode.
    """
    kwargs = {}
    if gain is not None and norm != "none":
        kwargs["gamma_initializer"] = keras.initializers.Constant(gain)
    inputs = keras.Input((steps, 1))
    initial_state = None
    if norm == "batch":
        lstm = keras_ln.BNLSTM(units, **kwargs)
        zeros = ops.tile(ops.zeros_like(inputs[:, 0]), (1, units))
        noisy = layers.GaussianNoise(noise, seed=_new_seed())(zeros)
        initial_state = [noisy, zeros]
    elif norm == "layer":
        lstm = keras_ln.LNLSTM(units, **kwargs)
    else:
        lstm = keras_ln.LNLSTM(units, normalize=())
    x = lstm(inputs, initial_state=initial_state)
    x = layers.Dense(classes)(x)
    # The loss wants float32 also where the layers compute in less.
    outputs = layers.Activation("linear", dtype="float32")(x)
    # All gates start with the identity, as the authors found best.
    lstm.cell.recurrent_kernel.assign(np.tile(np.eye(units), 4))
    return keras.Model(inputs, outputs)


def _new_seed() -> int:
    # Without a seed torch would draw from its global generator.
    return int(keras.random.randint((), 0, 2**31 - 1))


def order_of_pixels(order: str, pixels: int) -> np.ndarray:
    """The pixels in the order in which they are read; the same in all runs."""
    if order == "permuted":
        return np.random.default_rng(0).permutation(pixels)
    return np.arange(pixels)


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the digits, a few of them for --smoke."""
    digits = mnist.load(args)
    return digits.first(256, 128) if args.smoke else digits


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


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model and orders the pixels."""
    x, y, test_x, test_y = digits
    order = order_of_pixels(args.order, x[0].size)
    x, test_x = (
        images.reshape(len(images), -1, 1)[:, order] for images in (x, test_x)
    )
    model = build_model(args.norm, args.units, x.shape[1], gain=args.gain)
    updates_per_pass = len(x) // args.batch_size
    model.compile(
        keras.optimizers.RMSprop(
            args.learning_rate, momentum=0.9, global_clipnorm=1.0
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    return training.Task(
        model,
        lambda update: streams.shuffled(
            (x, y), args.batch_size, args.seed, update
        ),
        updates_per_pass,
        streams.in_order((test_x, test_y), EVALUATION_BATCH),
    )


def train(
    args: Namespace, digits: mnist.Digits, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind."""
    history = make_task(args, digits).fit(folder, args)
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


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add_gain(parser)
    parser.add_argument(
        "--order", choices=ORDERS, help="of the pixels; both with --compare"
    )


_TRAINING = plotting.Panel("training NLL", lambda row: row["loss"])

EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "order": "in-order",
            "epochs": 40,
            "batch_size": 64,
            "units": 64,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "order": "in-order",
            "epochs": 100,
            "batch_size": 64,
            "units": 100,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 8},
    load_data=load_data,
    train=train,
    check=check,
    compared={"order": ORDERS},
    add_arguments=_add_arguments,
    panels=(
        plotting.Panel("training NLL (nats)", lambda row: row["loss"]),
        plotting.Panel("test error (%)", _error),
    ),
    columns={
        "training NLL": "train_nll",
        "test NLL": "test_nll",
        "test error (%)": "test_error_percent",
    },
    race=_TRAINING,
    make_task=make_task,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
