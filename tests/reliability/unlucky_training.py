"""A training for the tests to kill, or to run out of disk or of permission.

    python unlucky_training.py FOLDER [--epochs N] [--recurrent]

trains in FOLDER, goes on where a backup there says, prints a line per epoch
and leaves the weights in final.npz. Everything in it is random: batches,
dropout of all kinds, noise.
"""

import argparse
import pathlib

import keras
import numpy as np
from common import training
from common.datasets import streams

import keras_ln


class AtTheEndOf(keras.callbacks.Callback):
    """Prints the epochs, and lets something happen after one of them."""

    def __init__(self, epoch=None, happens=None):
        super().__init__()
        # A number by itself would go into the backup and come back from it.
        self.strike = (epoch, happens)

    def on_epoch_end(self, epoch, logs=None):
        print("reached", epoch + 1, flush=True)
        when, happens = self.strike
        if epoch + 1 == when:
            happens()


def build_model(recurrent):
    """A model with random numbers, none of which has a seed of its own."""
    if recurrent:
        hidden = [
            keras_ln.LNLSTM(8, dropout=0.2, recurrent_dropout=0.3),
            keras_ln.BatchNormalization(),
        ]
    else:
        hidden = [keras.layers.Flatten(), keras.layers.Dense(8)]
    return keras.Sequential(
        [
            keras.Input((6, 3)),
            keras.layers.GaussianNoise(0.1),
            *hidden,
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )


def train(args, misfortune=None):
    """Trains; `misfortune` is a callback."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 6, 3)).astype("float32")
    y = np.float32(x[:, :, 0].sum(axis=1, keepdims=True) > 0)
    with training.environment(args):
        model = build_model(args.recurrent)
        model.compile(keras.optimizers.Adam(0.01), "mse")
        task = training.Task(
            model,
            lambda update: streams.shuffled((x, y), 8, 3, update),
            updates_per_pass=5,
            validation_data=streams.in_order((x, y), 40),
        )
        history = task.fit(
            args.folder,
            args,
            monitor="val_loss",
            mode="min",
            extra_callbacks=[misfortune or AtTheEndOf()],
        )
    weights = [keras.ops.convert_to_numpy(v) for v in model.weights]
    losses = [row["val_loss"] for row in history.rows]
    np.savez(args.folder / "final.npz", *weights, losses=losses)


def parse(argv=None):
    """The flags, with those of the examples that `training` reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recurrent", action="store_true")
    parser.set_defaults(
        scale=None,
        decay="none",
        evaluate_every=None,
        tensorboard=False,
        mixed_precision=None,
        distribute="none",
    )
    args = parser.parse_args(argv)
    args.folder.mkdir(exist_ok=True)
    return args


if __name__ == "__main__":
    train(parse())
