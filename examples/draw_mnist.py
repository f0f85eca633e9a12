"""Drawing digits: DRAW, section 6.4 and figure 4 of the paper.

A recurrent autoencoder looks at a patch of the image and paints a patch of the
canvas, again and again (Gregor et al., 2015):

    none    LSTM
    weight  weight-normalised LSTM
    layer   LSTM with layer normalisation of the cell's state, eq. 29 to 31

The paper's claim: layer normalisation is almost twice as fast over the first
100 epochs of binarised MNIST, and after 200 epochs its variational bound is
82.09 nats against 82.36 nats without.
"""

import functools
from pathlib import Path

from common import cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import Panel

KINDS = ("none", "weight", "layer")
# The number of digits that the trained model draws.
SAMPLES = 8


class DrawExperiment(Experiment):
    """The experiment of section 6.4, with `binarized_mnist.Images`."""

    training_metric = ("train_bound_nats", "loss")
    shown = ("loss", "val_loss", "val_kl")

    def add_arguments(self, parser):
        flags.add_counts(
            parser,
            glimpses="number of glimpses at an image",
            latent="number of latent variables of a step",
            read_size="side of the patch that is read, at least 2",
            write_size="side of the patch that is written, at least 2",
        )

    def check_flags(self, args):
        """Refuses patches that the attention does not allow."""
        for name in ("read_size", "write_size"):
            if vars(args)[name] < 2:
                raise InputError(
                    f"--{name.replace('_', '-')}: expected at least 2, because "
                    "one filter has no stride, received "
                    f"{vars(args)[name]}"
                )

    def load_data(self, args):
        from common.datasets import binarized_mnist

        images = binarized_mnist.load(args)
        return images.first(256, 128) if args.smoke else images

    def sizes(self, images):
        return len(images.train), len(images.test)

    def make_task(self, args, images):
        """Compiles the model, whose loss is the variational bound in nats."""
        import draw_mnist_model
        import keras

        def twice(x):  # As inputs and as targets.
            return 2 * [x.reshape(len(x), -1)]

        _, height, width = images.train.shape
        model = draw_mnist_model.build_model(
            args.norm,
            args.units,
            height,
            width,
            args.glimpses,
            args.latent,
            args.read_size,
            args.write_size,
            args.gain,
            args.seed,
            args.forget_steps,
        )
        return self.compile(
            args,
            images,
            model,
            lambda part: twice(part.train),
            lambda part: twice(part.test),
            optimizer=keras.optimizers.Adam(args.learning_rate),
            loss=draw_mnist_model.pixel_nll,
        )

    def measure_row(self, row):
        return {
            "test_bound_nats": row["val_loss"],
            "test_kl_nats": row["val_kl"],
        }

    def finish(self, args, images, task, history, folder):
        """Draws samples.png."""
        import keras
        import numpy as np
        from common import plotting

        shape = (SAMPLES, args.glimpses, args.latent)
        noise = np.random.default_rng(args.seed).normal(size=shape)
        canvases = task.model.get_layer("draw").generate(np.float32(noise))
        canvases = keras.ops.convert_to_numpy(canvases)
        # As many columns as one can tell apart.
        columns = np.linspace(0, args.glimpses - 1, min(12, args.glimpses))
        columns = columns.round().astype(int)
        plotting.images(
            canvases[:, columns],
            [str(column + 1) for column in columns],
            "canvas after this many glimpses",
            folder / "samples.png",
        )
        return {}

    def data_name(self, args):
        other = f"{Path(args.data).name}, binarised"
        return self.data_names.get(args.data, other)

    def details(self, args, images):
        _, height, width = images.train.shape
        return [f"{height} x {width}"]

    def floors(self, args, images):
        """The nats of random pixels, and of each pixel's frequency of 1.

        They are the bounds of models without latent variables.
        """
        import numpy as np

        black = images.train.mean(axis=0).clip(1e-4, 1 - 1e-4)
        test = images.test
        nll = -(test * np.log(black) + (1 - test) * np.log(1 - black))
        found = {
            "chance": black.size * float(np.log(2)),
            "mean image": float(nll.sum(axis=(1, 2)).mean()),
        }
        return {name: {"test_bound_nats": nats} for name, nats in found.items()}


EXPERIMENT = DrawExperiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=KINDS,
    without_gain=("none", "weight"),
    presets=two_presets(
        data=("embedded", "tfds"),
        epochs=(80, 200),
        batch_size=(32, 128),
        units=(64, 256),
        learning_rate=(5e-3, 1e-3),
        glimpses=(12, 64),
        latent=(10, 100),
        read_size=(3, 2),
        write_size=(4, 5),
    ),
    smoke={"epochs": 2, "units": 8, "glimpses": 3},
    memory=lambda args: args.glimpses,
    panels=(
        Panel("training bound (nats)", lambda row: row["loss"]),
        Panel("test bound (nats)", lambda row: row["val_loss"]),
    ),
    columns={
        "training bound (nats)": "train_bound_nats",
        "test bound (nats)": "test_bound_nats",
        "of it KL": "test_kl_nats",
    },
    race=Panel("test bound", lambda row: row["val_loss"]),
    data_names={
        "embedded": "scikit-learn's digits",
        "tfds": "Larochelle's binarised MNIST",
    },
)

main = functools.partial(cli.run, EXPERIMENT)

if __name__ == "__main__":
    ending.execute(main)
