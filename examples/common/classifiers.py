"""What the image classification experiments have in common."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import flags
from common.errors import InputError
from common.experiment import Experiment
from common.measures import Panel

if TYPE_CHECKING:
    import keras
    import numpy as np

    from common import training
    from common.datasets import mnist

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
    """The outputs `x` in float32, also where the layers compute in less."""
    import keras

    return keras.layers.Activation("linear", dtype="float32")(x)


def some(args: Namespace, data: "mnist.Digits") -> "mnist.Digits":
    """The images that --examples leaves.

    Raises:
        InputError: if there are fewer.
    """
    if args.examples is None:
        return data
    if args.examples > len(data.train_labels):
        raise InputError(
            f"--examples {args.examples} is more than the "
            f"{len(data.train_labels)} training images"
        )
    return data.first(args.examples, len(data.test_labels))


class Classifier(Experiment):
    """A script whose models name what is in an image.

    A subclass has `load_data`, and `make_task` that calls `classify`.
    """

    evaluation_batch = 400
    # Of --data-set, the first by default.
    data_sets: Sequence[str] = ("mnist", "fashion_mnist")

    def add_arguments(self, parser: ArgumentParser) -> None:
        flags.add_gain(parser)
        flags.add_images(parser, *self.data_sets)

    def sizes(self, data: "mnist.Digits") -> tuple[int, int]:
        return len(data.train_labels), len(data.test_labels)

    def classify(
        self,
        args: Namespace,
        data: "mnist.Digits",
        prepare: "Callable[[np.ndarray], np.ndarray]",
        build: "Callable[[tuple[int, ...]], keras.Model]",
        optimizer: "keras.optimizers.Optimizer",
        xla: bool = True,
    ) -> "training.Task":
        """Compiles a classifier of images.

        Args:
            args: the flags.
            data: images and labels.
            prepare: from images to the model's inputs.
            build: from the shape of an input to the model; it returns logits.
            optimizer: the optimizer.
            xla: whether the model gains from `training.speed`.
        """
        import keras

        from common import callbacks, devices, training
        from common.datasets import streams

        learnt = training.learnt(args, data)
        x = prepare(learnt.train_images)

        def evaluated(part):
            tested, batch = devices.held_out(
                args, len(part.test_labels), self.evaluation_batch
            )
            images = prepare(part.test_images[:tested])
            return streams.in_order((images, part.test_labels[:tested]), batch)

        updates_per_pass = len(x) // args.batch_size
        model = build(x.shape[1:])
        updates = args.evaluate_every or updates_per_pass
        model.compile(
            optimizer,
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
            **(training.speed(updates) if xla else {}),
        )

        def batches(update):
            return streams.shuffled(
                (x, learnt.train_labels), args.batch_size, args.seed, update
            )

        fresh = []
        if args.norm in self.batch_kinds:
            fresh.append(
                callbacks.FreshStatistics(
                    batches(0), args.batch_size, updates_per_pass
                )
            )
        return training.Task(
            model,
            batches,
            updates_per_pass,
            evaluated(data),
            evaluated(learnt) if args.tune else None,
            extra_callbacks=fresh,
        )

    def measure_row(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"test_nll": row["val_loss"], "test_error_percent": error(row)}

    def floors(
        self, args: Namespace, data: "mnist.Digits"
    ) -> dict[str, dict[str, float]]:
        from common import baselines

        x, y, test_x, test_y = data
        return baselines.of_classes((x, y), (test_x, test_y))

    def data_name(self, args: Namespace) -> str:
        names = {"embedded": "scikit-learn's digits", "tfds": args.data_set}
        return names.get(args.data, Path(args.data).name)

    def details(self, args: Namespace, data: "mnist.Digits") -> list[str]:
        height, width = data.train_images.shape[1:3]
        return [f"{height} x {width}"]
