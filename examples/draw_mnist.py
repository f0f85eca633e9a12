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

from common import ending, flags
from common.report import Panel

KINDS = ("none", "weight", "layer")
PRESETS = {  # quick, paper, --smoke
    "data": ("embedded", "tfds", "embedded"),
    "epochs": (80, 200, 2),
    "batch_size": (32, 128),
    "units": (64, 256, 8),
    "learning_rate": (5e-3, 1e-3),
    "glimpses": (12, 64, 3),
    "latent": (10, 100),
    "read_size": (3, 2),
    "write_size": (4, 5),
    "examples": (None, None, 256),
}
FLAGS = (
    flags.count("glimpses", "number of glimpses at an image"),
    flags.count("latent", "number of latent variables of a step"),
    # One filter would have no stride.
    flags.count("read_size", "side of the patch that is read", least=2),
    flags.count("write_size", "side of the patch that is written", least=2),
    *flags.images("binarized_mnist", "mnist"),
    flags.FORGET_STEPS,
)
BOUND = Panel("validation bound (nats)", "val_loss")
PANELS = (Panel("training bound (nats)", "loss"), BOUND)
COLUMNS = {
    "training bound (nats)": "train_bound_nats",
    "test bound (nats)": "test_bound_nats",
    "of it KL": "test_kl_nats",
}
SAMPLES = 8  # Digits that the trained model draws.


def main(argv=None):
    args = flags.parse(*(__file__, __doc__, KINDS, PRESETS, argv), own=FLAGS)

    import keras
    import numpy as np
    from common import plotting, report, runs
    from common.datasets import mnist
    from draw_mnist_model import build_model, pixel_nll

    parts = mnist.binarized(args)
    _, height, width = parts[0].shape
    train, validation, test = (x.reshape(len(x), -1) for x in parts)
    for run in runs.of(args, examples=len(train)):
        with run:
            model = build_model(
                *(run.norm, run.units, height, width, run.glimpses),
                *(run.latent, run.read_size, run.write_size, run.gain),
                *(run.seed, run.forget_steps),
            )
            # The model adds the divergence: the loss is the bound in nats.
            adam = keras.optimizers.Adam(run.learning_rate)
            model.compile(adam, pixel_nll, **run.speed)
            model.fit(
                run.batches(train, train),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=(validation, validation),
                validation_batch_size=128,
                callbacks=run.callbacks(model),
                verbose=run.verbose,
            )
            bound, divergence = model.evaluate(
                test, test, batch_size=128, verbose=0
            )
            shape = (SAMPLES, run.glimpses, run.latent)
            noise = np.random.default_rng(run.seed).normal(size=shape)
            canvases = model.get_layer("draw").generate(np.float32(noise))
            canvases = keras.ops.convert_to_numpy(canvases)
            plotting.canvases(canvases, run.folder / "samples.png")
            found = {"test_bound_nats": bound, "test_kl_nats": divergence}
            run.finish(found | {"train_bound_nats": run.last["loss"]})
    title = mnist.title(args, parts[0])
    return report.draw(args, PANELS, COLUMNS, title, race=BOUND)


if __name__ == "__main__":
    ending.execute(main)
