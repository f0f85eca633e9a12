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

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common import cli, ending, flags
from common.errors import InputError
from common.experiment import Experiment, two_presets
from common.measures import Panel

if TYPE_CHECKING:
    from common import training
    from common.datasets import binarized_mnist

KINDS = ("none", "weight", "layer")
# Drawn by the trained model.
SAMPLES = 8


class Draw(Experiment):
    """The experiment of section 6.4."""

    training_metric = ("train_bound_nats", "loss")

    def add_arguments(self, parser: ArgumentParser) -> None:
        flags.add_gain(parser)
        flags.add_counts(
            parser,
            glimpses="steps, T",
            latent="latent variables of a step",
            read_size="side of the patch that is read, at least 2",
            write_size="side of the patch that is written, at least 2",
        )

    def check_flags(self, args: Namespace) -> None:
        """Refuses patches that the attention does not allow."""
        for name in ("read_size", "write_size"):
            if vars(args)[name] < 2:
                raise InputError(
                    f"--{name.replace('_', '-')} has to be at least 2, since "
                    "the stride of one filter means nothing"
                )

    def load_data(self, args: Namespace) -> "binarized_mnist.Images":
        from common.datasets import binarized_mnist

        images = binarized_mnist.load(args)
        return images.first(256, 128) if args.smoke else images

    def sizes(self, images: "binarized_mnist.Images") -> tuple[int, int]:
        return len(images.train), len(images.test)

    def make_task(
        self, args: Namespace, images: "binarized_mnist.Images"
    ) -> "training.Task":
        """Compiles the model, whose loss is the variational bound in nats."""
        import draw_mnist_model
        import keras
        from common import devices, training
        from common.datasets import streams

        _, height, width = images.train.shape
        learnt = training.learnt(args, images)
        x = learnt.train.reshape(len(learnt.train), -1)

        def evaluated(part):
            tested, batch = devices.held_out(
                args, len(part.test), self.evaluation_batch
            )
            test_x = part.test[:tested].reshape(tested, -1)
            return streams.in_order((test_x, test_x), batch)

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
        )
        updates_per_pass = len(x) // args.batch_size
        model.compile(
            keras.optimizers.Adam(args.learning_rate),
            draw_mnist_model.pixel_nll,
            **training.speed(args.evaluate_every or updates_per_pass),
        )
        return training.Task(
            model,
            lambda update: streams.shuffled(
                (x, x), args.batch_size, args.seed, update
            ),
            updates_per_pass,
            evaluated(images),
            evaluated(learnt) if args.tune else None,
        )

    def measure_row(self, row: Mapping[str, float]) -> dict[str, float]:
        return {
            "test_bound_nats": row["val_loss"],
            "test_kl_nats": row["val_kl"],
        }

    def finish(self, args, images, task, history, folder) -> dict[str, float]:
        """Draws samples.png."""
        import keras
        import numpy as np
        from common import plotting

        shape = (SAMPLES, args.glimpses, args.latent)
        noise = np.random.default_rng(args.seed).normal(size=shape)
        canvases = task.model.get_layer("draw").generate(np.float32(noise))
        canvases = keras.ops.convert_to_numpy(canvases)
        # As many columns as can be told apart.
        columns = np.linspace(0, args.glimpses - 1, min(12, args.glimpses))
        columns = columns.round().astype(int)
        plotting.images(
            canvases[:, columns],
            [str(column + 1) for column in columns],
            "canvas after so many glimpses",
            folder / "samples.png",
        )
        return {}

    def data_name(self, args: Namespace) -> str:
        other = f"{Path(args.data).name}, binarised"
        return self.data_names.get(args.data, other)

    def details(
        self, args: Namespace, images: "binarized_mnist.Images"
    ) -> list[str]:
        _, height, width = images.train.shape
        return [f"{height} x {width}"]

    def floors(
        self, args: Namespace, images: "binarized_mnist.Images"
    ) -> dict[str, dict[str, float]]:
        """The nats of pixels by chance, and by how often each is 1.

        The bounds of models that use no latent variable.
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


EXPERIMENT = Draw(
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    ending.execute(main)
