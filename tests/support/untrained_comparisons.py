"""Comparisons whose runs take no time."""

import dataclasses

import numpy as np
import permutation_invariant_mnist as script
import pytest
from changed import changed
from common import callbacks, claims, cli, plotting

# What a run ends with, by kind, learning rate, and gain or scale: the best
# settings of the two kinds differ.
BEST = {"none": (3e-3, 1.0), "layer": (3e-4, 0.1)}


def loss_of(args):
    rate, second = BEST[args.norm]
    own = args.scale if args.norm == "none" else args.gain
    return (
        0.5
        + abs(np.log(args.learning_rate / rate))
        + abs(np.log((own or 1.0) / second))
        + 0.01 * args.seed
    )


def experiment_of(trained, patch):
    """Its runs are noted in the list, with the data that they saw."""

    def train(args, data, folder):
        trained.append((args, data))
        loss = loss_of(args)
        history = callbacks.History(folder / "history.csv", 10, 10)
        for epoch in range(args.epochs):
            history.on_epoch_begin(epoch)
            found = loss + args.epochs - 1 - epoch
            history.on_epoch_end(epoch, {"loss": found, "val_loss": found})
        metrics = {"updates": 10 * args.epochs}
        return metrics | {"train_nll": loss, "test_nll": loss}, history

    table = dataclasses.replace(claims.OF[script.EXPERIMENT.name], claims=())
    # Of every run of a grid; that of a comparison is drawn.
    patch.setattr(plotting, "curves", lambda *args: None)
    patch.setitem(claims.OF, script.EXPERIMENT.name, table)
    return dataclasses.replace(
        changed(
            script.EXPERIMENT,
            train=train,
            untrained=lambda args, data: {"test_nll": 2.5},
        ),
        panels=script.EXPERIMENT.panels[:1],
        columns={"training NLL": "train_nll", "test NLL": "test_nll"},
        kinds=("none", "layer"),
        compared={},
    )


def compare(experiment, folder, *flags):
    flags = ["--compare", "--epochs", "8", *flags]
    return cli.run(experiment, [*flags, "--output-dir", str(folder)])


def main(flags):
    """The comparison as a script."""
    with pytest.MonkeyPatch.context() as patch:
        experiment = experiment_of([], patch)
        return cli.run(experiment, ["--compare", "--epochs", "8", *flags])
