"""Digits read one pixel after the other: the test of recurrent batch norm.

An LSTM sees the pixels of an image in the usual order, or in one fixed random
order, and names the digit after the last pixel (Cooijmans et al., "Recurrent
Batch Normalization", 2016, section 5.1):

    none   LSTM
    batch  BNLSTM, statistics of each time step
    layer  LNLSTM

A step's input is [x, 1 - x] for all kinds, because layer normalisation would
keep only the sign of a single number.

Their test accuracies on MNIST are 98.9 % without and 99.0 % with batch
normalisation in order, 90.2 % and 95.4 % permuted.
"""

from common import ending, flags
from common.report import Panel

KINDS = ("none", "batch", "layer")
ORDERS = ("natural", "permuted")
PRESETS = {  # quick, paper, --smoke
    "data": ("embedded", "tfds", "embedded"),
    "order": ("natural", "natural"),
    "epochs": (40, 100, 2),
    "batch_size": (64, 64),
    "units": (64, 100, 8),
    "learning_rate": (1e-3, 1e-3),
    "pool": (1, 1),
    "examples": (None, None, 256),
}
TRAINING = Panel("training NLL", "loss")
PANELS = (
    TRAINING,
    Panel("validation error (%)", lambda row: 100 * (1 - row["val_accuracy"])),
)
COLUMNS = {"training NLL": "train_nll", "test NLL": "test_nll"}
COLUMNS["test error (%)"] = "test_error_percent"


def main(argv=None):
    args = flags.parse(
        *(__file__, __doc__, KINDS, PRESETS, argv),
        own=[
            *flags.images("mnist", "fashion_mnist"),
            flags.count("pool", "side of the squares that are averaged"),
            flags.choice("order", "pixel order (--compare: both)", ORDERS),
            flags.FORGET_STEPS,
        ],
        compared={"order": ORDERS},
    )

    import keras
    import numpy as np
    from common import report, runs
    from common.datasets import mnist
    from sequential_mnist_model import build_model

    parts = [
        (mnist.pooled(images, args.pool), labels)
        for images, labels in mnist.parts(args)
    ]
    steps = parts[0][0][0].size
    orders = {
        "natural": np.arange(steps),
        "permuted": np.random.default_rng(0).permutation(steps),
    }
    for run in runs.of(args, examples=len(parts[0][0])):
        with run:
            train, validation, test = (
                (images.reshape(-1, steps, 1)[:, orders[run.order]], labels)
                for images, labels in parts
            )
            model = build_model(
                *(run.norm, run.units, steps),
                **{"gain": run.gain, "forget_steps": run.forget_steps},
            )
            model.compile(
                keras.optimizers.RMSprop(
                    run.learning_rate, momentum=0.9, global_clipnorm=1.0
                ),
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
    return report.draw(args, PANELS, COLUMNS, title, race=TRAINING)


if __name__ == "__main__":
    ending.execute(main)
