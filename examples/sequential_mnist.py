"""Digits read one pixel after the other: the test of recurrent batch norm.

An LSTM sees the pixels of an image in the usual order, or in one fixed random
order, and names the digit after the last pixel (Cooijmans et al., "Recurrent
Batch Normalization", 2016, section 5.1):

    none   LSTM
    batch  BNLSTM, statistics of each time step
    layer  LNLSTM

A step's input is [x, 1 - x] for all kinds, because layer normalisation would
keep only the sign of a single number.

Their test accuracies on MNIST are 98.9 % without and 99.0 % with batch
normalisation in order, 90.2 % and 95.4 % permuted.
"""

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from common import classifiers, cli, ending, flags
from common.errors import InputError
from common.experiment import two_presets

if TYPE_CHECKING:
    import numpy as np

KINDS = ("none", "batch", "layer")
ORDERS = ("natural", "permuted")


def order_of_pixels(order: str, pixels: int) -> "np.ndarray":
    """The pixels in the order in which they are read; the same in all runs."""
    import numpy as np

    if order == "permuted":
        return np.random.default_rng(0).permutation(pixels)
    return np.arange(pixels)


def pixels(args: argparse.Namespace) -> int:
    """The pixels of an image of 8 x 8 digits, or of MNIST."""
    return 64 if args.data == "embedded" else (28 // (args.pool or 1)) ** 2


class SequentialDigits(classifiers.Classifier):
    """The experiment of Cooijmans et al."""

    smoke_images = (256, 128)

    def add_arguments(self, parser):
        super().add_arguments(parser)
        flags.add_counts(
            parser, pool="side of the squares that are averaged (default: 1)"
        )
        parser.add_argument(
            "--order", choices=ORDERS, help="pixel order (--compare: both)"
        )

    def load_data(self, args):
        from common.datasets import mnist

        digits = super().load_data(args)
        if args.pool is None:
            return digits
        height, width = digits.train_images.shape[1:]
        if height % args.pool or width % args.pool:
            raise InputError(
                f"--pool {args.pool} does not divide the {height} x {width} "
                "pixels"
            )
        return digits._replace(
            train_images=mnist.pooled(digits.train_images, args.pool),
            test_images=mnist.pooled(digits.test_images, args.pool),
        )

    def make_task(self, args, digits):
        """Compiles the model and orders the pixels."""
        import keras
        from sequential_mnist_model import build_model

        order = order_of_pixels(args.order, digits.train_images[0].size)
        return self.classify(
            args,
            digits,
            lambda images: images.reshape(len(images), -1, 1)[:, order],
            lambda shape: build_model(
                args.norm,
                args.units,
                shape[0],
                gain=args.gain,
                forget_steps=args.forget_steps,
            ),
            keras.optimizers.RMSprop(
                args.learning_rate, momentum=0.9, global_clipnorm=1.0
            ),
        )


EXPERIMENT = SequentialDigits(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none",),
    batch_kinds=("batch",),
    presets=two_presets(
        data=("embedded", "tfds"),
        order=("natural", "natural"),
        epochs=(40, 100),
        batch_size=(64, 64),
        units=(64, 100),
        learning_rate=(1e-3, 1e-3),
        data_set=(None, "mnist"),
    ),
    smoke={"epochs": 2, "units": 8},
    compared={"order": ORDERS},
    memory=pixels,
    panels=classifiers.panels(log=False),
    race=classifiers.RACE,
    columns=classifiers.COLUMNS,
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
