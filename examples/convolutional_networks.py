"""Convolutional networks: section 6.7 of the paper.

A small network classifies pictures. Normalisation after all layers but the
last:

    none            no normalisation
    layer           layer normalisation; an image's statistics over height,
                    width and channels
    layer-channels  statistics over the channels of each position
    batch           batch normalisation

The paper's claim: layer normalisation trains faster than no normalisation, and
batch normalisation is better than both. Units near the border of an image see
less of the image, so their statistics differ from other units' statistics.
Layer normalisation over all positions ignores this; layer-channels is for
comparison.
"""

import functools
from pathlib import Path

from common import classifiers, cli, ending
from common.errors import InputError
from common.experiment import two_presets

KINDS = ("none", "layer", "layer-channels", "batch")


class ConvolutionalNetworks(classifiers.Classifier):
    """The experiment of section 6.7."""

    data_sets = ("cifar10", "mnist", "fashion_mnist")

    smoke_images = (512, 128)

    def read(self, args):
        from common.datasets import cifar10, mnist

        of_mnist = args.data == "embedded"
        of_mnist |= (Path(args.data) / mnist.ARCHIVES[0]).is_file()
        if args.data == "tfds":
            of_mnist = args.data_set in mnist.SOURCES
        if of_mnist:
            data = super().read(args)
            return data._replace(
                train_images=data.train_images[..., None],
                test_images=data.test_images[..., None],
            )
        return cifar10.load(args)

    def load_data(self, args):
        data = super().load_data(args)
        pixels = data.train_images
        if pixels.size and pixels.min() == pixels.max():
            raise InputError(
                "--data: expected training images with different pixels, "
                f"received only pixels of {pixels.max():g}"
            )
        return data

    def check(self, args, data):
        super().check(args, data)
        height, width = data.train_images.shape[1:3]
        if min(height, width) < 4:  # They are halved twice.
            raise InputError(
                "--data: expected images of at least 4 x 4 pixels, received "
                f"{height} x {width}"
            )

    def make_task(self, args, data):
        """Compiles the model; pixels get mean 0 and deviation 1."""
        import keras
        from convolutional_networks_model import build_model

        mean, deviation = data.train_images.mean(), data.train_images.std()
        return self.classify(
            args,
            data,
            lambda images: (images - mean) / deviation,
            lambda shape: build_model(
                args.norm, args.units, shape, gain=args.gain
            ),
            keras.optimizers.Adam(args.learning_rate),
            xla=False,
        )


EXPERIMENT = ConvolutionalNetworks(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none",),
    batch_kinds=("batch",),
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(20, 50),
        batch_size=(64, 128),
        units=(16, 32),
        learning_rate=(1e-3, 1e-3),
        data_set=(None, "cifar10"),
    ),
    smoke={"epochs": 2, "units": 4},
    panels=classifiers.panels(log=True),
    race=classifiers.RACE,
    columns=classifiers.COLUMNS,
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
