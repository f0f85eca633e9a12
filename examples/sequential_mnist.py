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
from common import classifiers, cli, training
from common.datasets import mnist
from keras import layers, ops

import keras_ln

KINDS = ("none", "batch", "layer")
ORDERS = ("natural", "permuted")


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
        noise: standard deviation of the initial h of "batch", in training,
            and of the start value of that of "layer", which is learnt. The
            first pixels of many images are black: from an h of zero the state
            would stay zero there, and the gradient of its normalisation, which
            is 1 / sqrt(epsilon) per step, would leave the finite numbers.
    """
    kwargs = {}
    if gain is not None and norm != "none":
        kwargs["gamma_initializer"] = keras.initializers.Constant(gain)
    inputs = keras.Input((steps, 1))
    initial_state = None
    zeros = ops.tile(ops.zeros_like(inputs[:, 0]), (1, units))
    if norm == "batch":
        # The quick preset has too few updates for a momentum of 0.99.
        lstm = keras_ln.BNLSTM(units, momentum=0.9, **kwargs)
        # Equal states of a batch would have no variance either.
        noisy = layers.GaussianNoise(noise, seed=_new_seed())(zeros)
        initial_state = [noisy, zeros]
    elif norm == "layer":
        lstm = keras_ln.LNLSTM(units, **kwargs)
        start = keras.initializers.RandomNormal(stddev=noise)
        learnt = layers.Embedding(1, units, embeddings_initializer=start)
        nothing = ops.cast(ops.zeros_like(inputs[:, 0, 0]), "int32")
        initial_state = [learnt(nothing), zeros]
    else:
        lstm = keras_ln.LNLSTM(units, normalize=())
    x = lstm(inputs, initial_state=initial_state)
    x = layers.Dense(classes)(x)
    # All gates start with the identity, as the authors found best.
    lstm.cell.recurrent_kernel.assign(np.tile(np.eye(units), 4))
    return keras.Model(inputs, classifiers.logits(x))


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


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model and orders the pixels."""
    order = order_of_pixels(args.order, digits.train_images[0].size)
    return classifiers.make_task(
        args,
        digits,
        lambda images: images.reshape(len(images), -1, 1)[:, order],
        lambda shape: build_model(
            args.norm, args.units, shape[0], gain=args.gain
        ),
        keras.optimizers.RMSprop(
            args.learning_rate, momentum=0.9, global_clipnorm=1.0
        ),
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add_gain(parser)
    parser.add_argument(
        "--order", choices=ORDERS, help="of the pixels; both with --compare"
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "order": "natural",
            "epochs": 40,
            "batch_size": 64,
            "units": 64,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "order": "natural",
            "epochs": 100,
            "batch_size": 64,
            "units": 100,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 8},
    load_data=load_data,
    train=classifiers.trainer(make_task),
    check=classifiers.check,
    compared={"order": ORDERS},
    add_arguments=_add_arguments,
    panels=classifiers.panels(log=False),
    columns=classifiers.COLUMNS,
    race=classifiers.RACE,
    make_task=make_task,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
