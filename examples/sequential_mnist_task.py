"""Data and training of `sequential_mnist.py`."""

import dataclasses
from argparse import Namespace
from typing import Any

import keras
import numpy as np
import sequential_mnist_model
from common import classifiers, training, verdicts
from common.datasets import mnist
from common.errors import InputError

import keras_ln

# The batches whose statistics are averaged.
AVERAGED = 50


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


class FreshStatistics(keras.callbacks.Callback):
    """Averages the batch statistics anew before every evaluation.

    Over many steps small differences between moving averages and the batches
    add up. Training sees the batches' own statistics.
    """

    def __init__(self, batches: Any, number: int):
        super().__init__()
        self.batches = batches
        self.number = number

    def on_test_begin(self, logs=None):
        model = self.model
        (noise,) = (
            layer
            for layer in model.layers
            if isinstance(layer, sequential_mnist_model.InitialNoise)
        )
        # For so few batches XLA would not pay.
        compiled, model.jit_compile = model.jit_compile, False
        noise.averaging = True
        keras_ln.reestimate_statistics(model, self.batches, steps=self.number)
        noise.averaging = False
        model.jit_compile = compiled


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model and orders the pixels."""
    order = order_of_pixels(args.order, digits.train_images[0].size)
    task = classifiers.make_task(
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
    if args.norm != "batch":
        return task
    number = min(AVERAGED, task.updates_per_pass)
    fresh = FreshStatistics(task.batches(0), number)
    return dataclasses.replace(task, extra_callbacks=[fresh])


PROCEDURE = classifiers.procedure(
    load_data,
    make_task,
    log=False,
    claims=[
        verdicts.Claim(
            f"batch is {how} than none, {order}",
            "batch",
            "none",
            value=order,
            **measure,
        )
        for order in ("natural", "permuted")
        for how, measure in (
            ("faster", {"panel": classifiers.RACE}),
            ("better", {"metric": "test_error_percent"}),
        )
    ],
)
