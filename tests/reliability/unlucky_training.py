"""A training for the tests to kill.

    python unlucky_training.py --output-dir FOLDER [--epochs N] [--recurrent]

trains in FOLDER, goes on where a backup there says, prints a line per epoch
and leaves the weights in final.npz. Everything in it has a state: batches,
dropout of all kinds and noise without seeds, callbacks.
"""

import keras
import numpy as np
from common import flags, runs

import keras_ln


def build_model(recurrent):
    """A model with random numbers, none of which has a seed of its own."""
    if recurrent:
        hidden = [
            keras_ln.LNLSTM(8, dropout=0.2, recurrent_dropout=0.3),
            keras_ln.BatchNormalization(),
        ]
    else:
        hidden = [keras.layers.Flatten(), keras.layers.Dense(8, "tanh")]
    return keras.Sequential(
        [
            keras.Input((6, 3)),
            keras.layers.GaussianNoise(0.1),
            *hidden,
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )


def main(argv=None):
    """Trains; returns 0."""
    args = parse(argv)
    other, args.other_seed = args.other_seed, None
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6, 3)).astype("float32")
    y = np.float32(x[:, :, 0].sum(axis=1, keepdims=True) > 0)
    patience = []
    if not args.recurrent:  # Which is to last.
        patience = [
            keras.callbacks.EarlyStopping(
                "val_loss", patience=4, restore_best_weights=True
            ),
            keras.callbacks.ReduceLROnPlateau("val_loss", 0.5, patience=1),
        ]
    reached = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, _: print("reached", epoch + 1, flush=True)
    )
    for run in runs.of(args, examples=len(x)):
        with run:
            if other:  # What is not restored differs.
                keras.utils.set_random_seed(other)
            model = build_model(args.recurrent)
            rate = 0.01 if args.recurrent else 0.3
            model.compile(keras.optimizers.Adam(rate), "mse")
            numbers = runs.shuffled(len(x), 8, 3, run.first)
            model.fit(
                ((x[rows], y[rows]) for rows in numbers),
                steps_per_epoch=run.steps,
                shuffle=False,
                epochs=run.epochs,
                validation_data=(x, y),
                validation_batch_size=40,
                callbacks=[*run.callbacks(model, *patience), reached],
                verbose=0,
            )
            weights = [keras.ops.convert_to_numpy(v) for v in model.weights]
            losses = [row["val_loss"] for row in run.history.rows]
            np.savez(args.folder / "final.npz", *weights, losses=losses)
    return 0


def parse(argv):
    """The flags, with those of the examples that `runs` reads."""
    recurrent = flags.Flag("recurrent", "layers", action="store_true")
    other_seed = flags.count("other_seed", "seed of what is not restored")
    presets = {
        **{"data": 2 * ("embedded",), "epochs": (40, 40)},
        **{"batch_size": (8, 8)},
    }
    args = flags.parse(
        *(__file__, __doc__, ["layer"], presets, argv),
        own=[recurrent, other_seed],
    )
    args.resume = True
    return args


if __name__ == "__main__":
    main()
