"""A killed run goes on to the very result of an unbroken one."""

import os
import signal
from argparse import Namespace

import keras
import numpy as np
import pytest
import sequential_mnist
import tensorflow as tf
from common import training
from common.datasets import streams
from same_results import assert_same_results, without_seconds
from terminals import start_on_terminal

FLAGS = ["--units", "8", "--epochs", "4", "--batch-size", "8"]


def _weights(folder):
    model = keras.models.load_model(folder / "model.keras", compile=False)
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


def _assert_same_run(folder, other):
    assert_same_results(folder, other, "args.json", "metrics.json")
    for one, two in zip(_weights(folder), _weights(other), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.full
@pytest.mark.on_tensorflow
def test_kill_in_the_middle_of_an_epoch(tmp_path):
    # Batch statistics of every step and random initial states.
    script = sequential_mnist
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    flags = [*FLAGS, "--norm", "batch"]
    assert script.main([*flags, "--output-dir", str(unbroken)]) == 0
    process, read = start_on_terminal(script, *flags, "--output-dir", killed)
    # The bar of the third epoch shows an update: the epoch is under way.
    read(until="Epoch 3/4")
    read(until="loss")
    os.kill(process.pid, signal.SIGKILL)
    read()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "metrics.json").exists()
    assert (killed / training.BACKUP).exists()
    assert script.main([*flags, "--output-dir", str(killed), "--resume"]) == 0
    _assert_same_run(unbroken, killed)
    assert not (killed / training.BACKUP).exists()


def _train_with_state(folder, seed, dies_after=None):
    """Everything that has state: dropout, seeds, plateaus, patience."""
    folder.mkdir(exist_ok=True)
    args = Namespace(
        seed=seed,
        epochs=40,
        scale=None,
        decay="none",
        evaluate_every=None,
        tensorboard=False,
        mixed_precision=None,
        distribute="none",
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 5)).astype("float32")
    y = np.float32(x[:, :1] > 0)

    def batches(update):
        stream = streams.shuffled((x, y), 8, 3, update)
        if dies_after is None:
            return stream
        living = tf.data.Dataset.range(dies_after).map(lambda _: True)
        dead = tf.data.Dataset.from_generator(_die, tf.bool, ())
        alive = living.concatenate(dead)
        return tf.data.Dataset.zip(stream, alive).map(lambda xy, _: xy)

    with training.environment(args):
        model = keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.Dense(8, "tanh"),
                keras.layers.Dropout(0.5),
                keras.layers.GaussianNoise(0.1),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.3), "mse")
        patience = keras.callbacks.EarlyStopping(
            "val_loss", patience=4, restore_best_weights=True
        )
        plateau = keras.callbacks.ReduceLROnPlateau("val_loss", 0.5, patience=1)
        test = streams.in_order((x, y), 40)
        history = training.Task(model, batches, 5, test).fit(
            folder,
            args,
            monitor="val_loss",
            mode="min",
            extra_callbacks=[patience, plateau],
        )
    weights = [keras.ops.convert_to_numpy(w) for w in model.weights]
    return without_seconds(history.rows), weights


def _die():
    raise OSError("killed")
    yield


@pytest.mark.full
@pytest.mark.parametrize("dies_after", [5, 18, 31])
def test_random_numbers_and_callbacks_go_on(tmp_path, dies_after):
    rows, weights = _train_with_state(tmp_path / "unbroken", seed=1)
    rates = [row["learning_rate"] for row in rows]
    # The problem is sensitive: both callbacks act, after all the deaths.
    assert 31 < rows[-1]["updates"] < 200 and rates[-1] < rates[0]

    killed = tmp_path / "killed"
    with pytest.raises(Exception, match="killed"):
        _train_with_state(killed, seed=1, dies_after=dies_after)
    # Another seed: what is not restored would differ.
    resumed = _train_with_state(killed, seed=2)
    assert resumed[0] == rows
    for one, two in zip(weights, resumed[1], strict=True):
        np.testing.assert_array_equal(one, two)
    # The best model so far was saved, and nothing worse after it.
    for one, two in zip(
        _weights(tmp_path / "unbroken"), _weights(killed), strict=True
    ):
        np.testing.assert_array_equal(one, two)
    # A run that was stopped early stays so.
    assert _train_with_state(killed, seed=2)[0] == rows


def test_streams_are_a_function_of_seed_and_update():
    x = np.arange(11)

    def first(seed, update, count=12):
        stream = streams.shuffled((x,), 3, seed, update)
        return [tuple(b.numpy()) for (b,) in stream.take(count)]

    whole = first(seed=0, update=0)
    assert all(len(batch) == 3 for batch in whole)
    for start in range(0, 12, 3):  # No example twice in a pass.
        assert len(set(sum(whole[start : start + 3], ()))) == 9
    assert len(set(whole)) > 9
    for update in range(12):
        assert first(0, update, 12 - update) == whole[update:]
    assert first(seed=1, update=0) != whole
