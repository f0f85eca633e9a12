"""Data and training of `permutation_invariant_mnist.py`."""

from argparse import Namespace

import keras
import permutation_invariant_mnist_model
from common import classifiers, training
from common.datasets import mnist


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the digits, a few of them for --smoke."""
    digits = classifiers.some(args, mnist.load(args, args.data_set or "mnist"))
    return digits.first(1408, 384) if args.smoke else digits


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model; small batches get the unbiased variance."""
    return classifiers.make_task(
        args,
        digits,
        lambda images: images.reshape(len(images), -1),
        lambda shape: permutation_invariant_mnist_model.build_model(
            args.norm,
            args.units,
            shape[0],
            unbiased=args.batch_size <= 4,
            gain=args.gain,
        ),
        keras.optimizers.Adam(args.learning_rate),
    )


PROCEDURE = classifiers.procedure(load_data, make_task, log=True, race=False)
