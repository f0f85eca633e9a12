"""A training for the tests to kill.

    python unlucky_training.py --output-dir FOLDER [--epochs N] [--recurrent]

trains in FOLDER, goes on where a backup there says, prints a line per epoch
and leaves the weights in final.npz. Everything in it has a state: batches,
dropout of all kinds and noise without seeds, callbacks.
"""

import argparse
import pathlib

import keras
import numpy as np
from common import ending, training
from common.datasets import streams

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
    with training.environment(args):
        model = build_model(args.recurrent)
        rate = 0.01 if args.recurrent else 0.3
        model.compile(keras.optimizers.Adam(rate), "mse")
        task = training.Task(
            model,
            lambda update: streams.shuffled((x, y), 8, 3, update),
            updates_per_pass=5,
            validation_data=streams.in_order((x, y), 40),
        )
        with ending.resumable(args.output_dir):
            history = task.fit(
                args.output_dir,
                args,
                monitor="val_loss",
                mode="min",
                extra_callbacks=[*patience, reached],
            )
    weights = [keras.ops.convert_to_numpy(v) for v in model.weights]
    losses = [row["val_loss"] for row in history.rows]
    np.savez(args.output_dir / "final.npz", *weights, losses=losses)
    return 0


def parse(argv):
    """The flags, with those of the examples that `training` reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--output-dir", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recurrent", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.set_defaults(
        scale=None,
        decay="none",
        evaluate_every=None,
        tensorboard=False,
        mixed_precision=None,
        distribute="none",
    )
    args = parser.parse_args(argv)
    args.output_dir.mkdir(exist_ok=True)
    return args


if __name__ == "__main__":
    main()
