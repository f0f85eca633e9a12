"""The common parts of the image classification experiments."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import flags
from common.errors import InputError
from common.experiment import Experiment
from common.measures import Panel

COLUMNS = {
    "training NLL": "train_nll",
    "test NLL": "test_nll",
    "test error (%)": "test_error_percent",
}
RACE = Panel("training NLL", lambda row: row["loss"])


def error(row: Mapping[str, float]) -> float:
    """The test error of a row of the history, in percent."""
    return 100 * (1 - row["val_accuracy"])


def panels(log: bool) -> Sequence[Panel]:
    """Loss and error; `log` says whether the axes are logarithmic."""
    return (
        Panel("training NLL (nats)", RACE.value, log),
        Panel("test error (%)", error, log),
    )


def logits(x: Any) -> Any:
    """The outputs `x` in float32, also for layers in half precision."""
    import keras

    return keras.layers.Activation("linear", dtype="float32")(x)


class Classifier(Experiment):
    """A script whose models classify the images of `mnist.Digits`.

    A subclass has `make_task`, which calls `classify`.
    """

    embedded = "scikit-learn's digits"
    evaluation_batch = 400
    shown = ("loss", "val_loss", "val_accuracy")
    fresh_statistics = True
    # The values of --data-set; the first is the default.
    data_sets: Sequence[str] = ("mnist", "fashion_mnist")
    # The numbers of training and test images with --smoke.
    smoke_images: tuple[int, int]

    def add_arguments(self, parser):
        flags.add_images(parser, *self.data_sets)

    def read(self, args):
        """The images that --data, --data-dir and --data-set ask for."""
        from common.datasets import mnist

        return mnist.load(args, args.data_set or "mnist")

    def load_data(self, args):
        data = self.read(args)
        if args.examples is not None:
            if args.examples > len(data.train_labels):
                raise InputError(
                    f"--examples {args.examples} is more than the "
                    f"{len(data.train_labels)} training images"
                )
            data = data.first(args.examples, len(data.test_labels))
        return data.first(*self.smoke_images) if args.smoke else data

    def sizes(self, data):
        return len(data.train_labels), len(data.test_labels)

    def classify(self, args, data, prepare, build, optimizer, xla=True):
        """Compiles a classifier of images, for `make_task`.

        Args besides the arguments of `compile`:
            prepare: from images to the model's inputs.
            build: from the shape of an input to the model; it returns logits.
        """
        import keras

        return self.compile(
            args,
            data,
            build(prepare(data.train_images[:1]).shape[1:]),
            lambda part: (prepare(part.train_images), part.train_labels),
            lambda part: (prepare(part.test_images), part.test_labels),
            xla=xla,
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )

    def measure_row(self, row):
        return {"test_nll": row["val_loss"], "test_error_percent": error(row)}

    def floors(self, args, data):
        from common import baselines

        x, y, test_x, test_y = data
        return baselines.of_classes((x, y), (test_x, test_y))

    def data_name(self, args):
        names = {"embedded": self.embedded, "tfds": args.data_set}
        return names.get(args.data, Path(args.data).name)

    def details(self, args, data):
        height, width = data.train_images.shape[1:3]
        return [f"{height} x {width}"]
