"""Permutation invariant MNIST: section 6.6 and figure 6 of the paper.

A classifier with two hidden layers learns handwritten digits from pixels
without knowing how they lie together, in large and in small batches:

    none   no normalisation
    layer  layer normalisation of the summed inputs of both hidden layers
    batch  batch normalisation of the summed inputs of all three layers

The paper's claim: layer normalisation is robust to the batch size, and at
batch size 4 it trains faster than batch normalisation.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import classifiers, cli, ending
from common.experiment import two_presets

if TYPE_CHECKING:
    from common import training
    from common.datasets import mnist

KINDS = ("none", "layer", "batch")


class Digits(classifiers.Classifier):
    """The experiment of section 6.6."""

    def load_data(self, args: Namespace) -> "mnist.Digits":
        from common.datasets import mnist

        digits = mnist.load(args, args.data_set or "mnist")
        digits = classifiers.some(args, digits)
        return digits.first(1408, 384) if args.smoke else digits

    def make_task(
        self, args: Namespace, digits: "mnist.Digits"
    ) -> "training.Task":
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
