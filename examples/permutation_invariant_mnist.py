"""Permutation invariant MNIST: section 6.6 and figure 6 of the paper.

A classifier with two hidden layers learns handwritten digits from pixels
without knowing their positions, in large and in small batches:

    none   no normalisation
    layer  layer normalisation of the summed inputs of both hidden layers
    batch  batch normalisation of the summed inputs of all three layers

The paper's claim: layer normalisation is robust to the batch size, and at
batch size 4 it trains faster than batch normalisation.
"""

from common import ending, flags
from common.report import Panel

KINDS = ("none", "layer", "batch")
PRESETS = {  # quick, paper, --smoke
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (30, 60, 2),
    "batch_size": (128, 128),
    "units": (256, 1000, 32),
    "learning_rate": (1e-3, 1e-3),
}
PANELS = (
    Panel("training NLL (nats)", "loss", log=True),
    Panel("validation NLL (nats)", "val_loss", log=True),
)
COLUMNS = {"training NLL": "train_nll", "test NLL": "test_nll"}
COLUMNS["test error (%)"] = "test_error_percent"


def main(argv=None):
    args = flags.parse(
        *(__file__, __doc__, KINDS, PRESETS, argv),
        own=flags.images("mnist", "fashion_mnist"),
        compared={"batch_size": (128, 4)},
    )

    import keras
    from common import report, runs
    from common.datasets import mnist
    from permutation_invariant_mnist_model import build_model

    parts = mnist.parts(args)
    train, validation, test = (
        (images.reshape(len(images), -1), labels) for images, labels in parts
    )
    for run in runs.of(args, examples=len(train[0])):
        with run:
            model = build_model(
                run.norm,
                run.units,
                pixels=train[0].shape[1],
                # As in the paper, for small batches.
                unbiased=run.batch_size <= 4,
                gain=run.gain,
            )
            model.compile(
                keras.optimizers.Adam(run.learning_rate),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
                **run.speed,
            )
            model.fit(
                run.batches(*train),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=validation,
                validation_batch_size=400,
                callbacks=run.callbacks(model, *run.fresh_statistics(train[0])),
                verbose=run.verbose,
            )
            loss, accuracy = model.evaluate(*test, batch_size=400, verbose=0)
            found = {"train_nll": run.last["loss"], "test_nll": loss}
            run.finish(found | {"test_error_percent": 100 * (1 - accuracy)})
    title = mnist.title(args, parts[0][0])
    return report.draw(args, PANELS, COLUMNS, title)


if __name__ == "__main__":
    ending.execute(main)
