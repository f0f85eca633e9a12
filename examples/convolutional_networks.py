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

from common import ending, flags
from common.report import Panel

KINDS = ("none", "layer", "layer-channels", "batch")
PRESETS = {  # quick, paper, --smoke
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (20, 50, 2),
    "batch_size": (64, 128),
    "units": (16, 32, 4),
    "learning_rate": (1e-3, 1e-3),
    "examples": (None, None, 512),
}
TRAINING = Panel("training NLL (nats)", "loss", log=True)
PANELS = (TRAINING, Panel("validation NLL (nats)", "val_loss", log=True))
COLUMNS = {"training NLL": "train_nll", "test NLL": "test_nll"}
COLUMNS["test error (%)"] = "test_error_percent"


def main(argv=None):
    args = flags.parse(
        *(__file__, __doc__, KINDS, PRESETS, argv),
        own=flags.images("cifar10", "mnist", "fashion_mnist"),
    )

    import keras
    from common import report, runs
    from common.datasets import mnist
    from convolutional_networks_model import build_model

    parts = mnist.parts(args)
    mean, deviation = parts[0][0].mean(), parts[0][0].std()
    train, validation, test = (
        # Grey images have one channel.
        ((x.reshape(*x.shape[:3], -1) - mean) / deviation, labels)
        for x, labels in parts
    )
    for run in runs.of(args, examples=len(train[0])):
        with run:
            model = build_model(
                run.norm, run.units, train[0].shape[1:], gain=run.gain
            )
            model.compile(
                keras.optimizers.Adam(run.learning_rate),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
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
    title = mnist.title(args, train[0])
    return report.draw(args, PANELS, COLUMNS, title, race=TRAINING)


if __name__ == "__main__":
    ending.execute(main)
