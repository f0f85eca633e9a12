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
from common import classifiers, cli, training
from common.datasets import mnist
from keras import layers

import keras_ln

KINDS = ("none", "layer", "batch")


def build_model(
    norm: str = "layer",
    units: int = 1000,
    pixels: int = 784,
    classes: int = 10,
    unbiased: bool = False,
    gain: float | None = None,
) -> keras.Model:
    """Builds the classifier; its outputs are logits.

    Args:
        norm: one of `KINDS`.
        units: the width of both hidden layers.
        pixels: the inputs.
        classes: the outputs.
        unbiased: whether batch normalisation divides by n - 1.
        gain: initial gain of the normalisation; None for the layers' own.
    """
    start = keras.initializers.Constant(1.0 if gain is None else gain)

    def normalize(x):  # (B, features)
        if norm == "layer":
            return keras_ln.LayerNormalization(gamma_initializer=start)(x)
        if norm == "batch":
            return keras_ln.BatchNormalization(
                unbiased=unbiased, gamma_initializer=start
            )(x)
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
    return keras.Model(inputs, classifiers.logits(x))


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the digits, a few of them for --smoke."""
    digits = mnist.load(args)
    return digits.first(1408, 384) if args.smoke else digits


def make_task(args: Namespace, digits: mnist.Digits) -> training.Task:
    """Compiles the model; small batches get the unbiased variance."""
    return classifiers.make_task(
        args,
        digits,
        lambda images: images.reshape(len(images), -1),
        lambda shape: build_model(
            args.norm,
            args.units,
            shape[0],
            unbiased=args.batch_size <= 4,
            gain=args.gain,
        ),
        keras.optimizers.Adam(args.learning_rate),
    )


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
    train=classifiers.trainer(make_task),
    check=classifiers.check,
    compared={"batch_size": (128, 4)},
    add_arguments=cli.add_gain,
    make_task=make_task,
    panels=classifiers.panels(log=True),
    columns=classifiers.COLUMNS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
