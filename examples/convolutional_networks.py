"""Convolutional networks: section 6.7 of the paper.

A small network names what is in a picture. After every layer but the last:

    none            no normalisation
    layer           layer normalisation; an image's statistics over height,
                    width and channels
    layer-channels  statistics over the channels of each position
    batch           batch normalisation

The paper's claim: layer normalisation trains faster than no normalisation, and
batch normalisation is better than both. Units near the border of an image see
less of it and have other statistics than the rest, which layer normalisation
over all positions ignores; hence layer-channels for comparison.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import keras
from common import classifiers, cli, training
from common.datasets import cifar10, mnist
from keras import layers

import keras_ln

KINDS = ("none", "layer", "layer-channels", "batch")


def build_model(
    norm: str = "layer",
    units: int = 32,
    image_shape: Sequence[int] = (32, 32, 3),
    classes: int = 10,
    gain: float | None = None,
) -> keras.Model:
    """Builds the classifier; its outputs are logits.

    Twice two convolutions of 3 x 3 and a maximum over 2 x 2, then a dense
    layer. Every unit has its own gain and bias in layer normalisation, as in
    equation 3 of the paper; in batch normalisation every channel has.

    Args:
        norm: one of `KINDS`.
        units: the channels of the first convolutions; the second ones have
            twice as many, the dense layer eight times.
        image_shape: height, width and channels.
        classes: the outputs.
        gain: initial gain of the normalisation; None for the layer's own.
    """
    start = keras.initializers.Constant(1.0 if gain is None else gain)

    def hidden(x, layer: keras.Layer):
        x = layer(x)
        if norm == "batch":
            # The quick preset has too few updates for a momentum of 0.99.
            x = keras_ln.BatchNormalization(
                momentum=0.9, gamma_initializer=start
            )(x)
        elif norm != "none":
            everything = tuple(range(1, len(x.shape)))
            axis = everything if norm == "layer" else -1
            x = keras_ln.LayerNormalization(axis, gamma_initializer=start)(x)
        return layers.Activation("relu")(x)

    def convolution(channels: int) -> keras.Layer:
        return layers.Conv2D(channels, 3, padding="same", use_bias=use_bias)

    # The normalisations have a bias of their own, and batch normalisation
    # cancels one before it.
    use_bias = norm == "none"
    inputs = x = keras.Input(tuple(image_shape))
    for channels in (units, 2 * units):
        x = hidden(x, convolution(channels))
        x = hidden(x, convolution(channels))
        x = layers.MaxPooling2D()(x)
    x = layers.Flatten()(x)
    x = hidden(x, layers.Dense(8 * units, use_bias=use_bias))
    x = layers.Dense(classes)(x)
    return keras.Model(inputs, classifiers.logits(x))


def load_data(args: Namespace) -> mnist.Digits:
    """Loads the pictures, a few of them for --smoke."""
    if args.data == "embedded":
        data = mnist.small_digits()
        data = data._replace(
            train_images=data.train_images[..., None],
            test_images=data.test_images[..., None],
        )
    else:
        data = cifar10.load(args)
    return data.first(512, 128) if args.smoke else data


def make_task(args: Namespace, data: mnist.Digits) -> training.Task:
    """Compiles the model; pixels get mean 0 and deviation 1."""
    mean, deviation = data.train_images.mean(), data.train_images.std()
    return classifiers.make_task(
        args,
        data,
        lambda images: (images - mean) / deviation,
        lambda shape: build_model(args.norm, args.units, shape, gain=args.gain),
        keras.optimizers.Adam(args.learning_rate),
        xla=False,
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 20,
            "batch_size": 64,
            "units": 16,
            "learning_rate": 1e-3,
        },
        "paper": {
            "data": "tfds",
            "epochs": 50,
            "batch_size": 128,
            "units": 32,
            "learning_rate": 1e-3,
        },
    },
    smoke={"epochs": 2, "units": 4},
    load_data=load_data,
    train=classifiers.trainer(make_task),
    check=classifiers.check,
    add_arguments=cli.add_gain,
    panels=classifiers.panels(log=True),
    columns=classifiers.COLUMNS,
    race=classifiers.RACE,
    make_task=make_task,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
