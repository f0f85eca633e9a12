"""Permutation invariant MNIST: section 6.6 and figure 6 of the paper.

A classifier with two hidden layers learns handwritten digits from pixels
without knowing their positions, in large and in small batches:

    none   no normalisation
    layer  layer normalisation of the summed inputs of both hidden layers
    batch  batch normalisation of the summed inputs of all three layers

The paper's claim: layer normalisation is robust to the batch size, and at
batch size 4 it trains faster than batch normalisation.
"""

import functools
from pathlib import Path

from common import classifiers, cli, ending
from common.experiment import two_presets

KINDS = ("none", "layer", "batch")


class Digits(classifiers.Classifier):
    """The experiment of section 6.6."""

    smoke_images = (1408, 384)

    def make_task(self, args, digits):
        """Compiles the model; small batches get the unbiased variance."""
        import keras
        from permutation_invariant_mnist_model import build_model

        return self.classify(
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


EXPERIMENT = Digits(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none",),
    batch_kinds=("batch",),
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(30, 60),
        batch_size=(128, 128),
        units=(256, 1000),
        learning_rate=(1e-3, 1e-3),
        data_set=(None, "mnist"),
    ),
    smoke={"epochs": 2, "units": 32},
    compared={"batch_size": (128, 4)},
    panels=classifiers.panels(log=True),
    columns=classifiers.COLUMNS,
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
