"""Data and training of `sequential_mnist.py`."""

from argparse import Namespace

import keras
import numpy as np
import sequential_mnist_model
from common import classifiers, training
from common.datasets import mnist
from common.errors import InputError


def order_of_pixels(order: str, pixels: int) -> np.ndarray:
    """The pixels in the order in which they are read; the same in all runs."""
    if order == "permuted":
        return np.random.default_rng(0).permutation(pixels)
    return np.arange(pixels)


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the digits, a few of them for --smoke."""
    digits = classifiers.some(args, mnist.load(args, args.data_set or "mnist"))
    if args.smoke:
        digits = digits.first(256, 128)
    if args.pool is None:
        return digits
    height, width = digits.train_images.shape[1:]
    if height % args.pool or width % args.pool:
        raise InputError(
            f"--pool {args.pool} does not divide the {height} x {width} pixels"
        )
    return digits._replace(
        train_images=mnist.pooled(digits.train_images, args.pool),
        test_images=mnist.pooled(digits.test_images, args.pool),
    )


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model and orders the pixels."""
    order = order_of_pixels(args.order, digits.train_images[0].size)
    return classifiers.make_task(
        args,
        digits,
        lambda images: images.reshape(len(images), -1, 1)[:, order],
        lambda shape: sequential_mnist_model.build_model(
            args.norm, args.units, shape[0], gain=args.gain
        ),
        keras.optimizers.RMSprop(
            args.learning_rate, momentum=0.9, global_clipnorm=1.0
        ),
    )


PROCEDURE = classifiers.procedure(load_data, make_task, log=False)
