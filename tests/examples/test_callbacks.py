"""Callbacks that are hard to see from the outside of a script."""

from argparse import Namespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from common import backup, callbacks, training
from common.errors import NonFiniteLossError

ARGS = Namespace(
    epochs=5,
    scale=None,
    decay="none",
    evaluate_every=None,
    tensorboard=False,
    seed=0,
    distribute="none",
)


def _fit(folder, spoilt_at=None, units=1, **more):
    """A regression over 3 updates an epoch; one target may be infinite."""
    x = np.ones((2, 3), "float32")

    def batch(number):
        bad = number == (-1 if spoilt_at is None else spoilt_at)
        y = tf.where(bad, np.inf, 1.0)
        return x, tf.fill((2, units), tf.cast(y, tf.float32))

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    task = training.Task(
        model,
        lambda update: tf.data.Dataset.range(update, 100).map(batch),
        updates_per_pass=3,
        validation_data=(x, np.ones((2, units))),
    )
    return model, task.fit(folder, Namespace(**vars(ARGS) | more))


@pytest.mark.parametrize("update", [7, 8])
def test_the_update_is_named_and_the_last_good_state_kept(tmp_path, update):
    message = f"loss is inf at update {update + 1}; the last good model"
    with pytest.raises(NonFiniteLossError, match=message):
        _fit(tmp_path, spoilt_at=update)
    good = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert all(np.isfinite(w).all() for w in good.get_weights())
    assert backup.Backup(tmp_path / training.BACKUP).epoch == 2
    # What went wrong mended, the run goes on.
    _, history = _fit(tmp_path)
    assert [row["updates"] for row in history.rows] == [3, 6, 9, 12, 15]


def test_the_learning_rate_falls_as_a_cosine(tmp_path):
    """Of e = w x + b - 1 an update leaves e (1 - 8 rate), as all x are 1."""

    def error(model):
        w, b = (v.astype("float64") for v in model.get_weights())
        return w.sum() + b.sum() - 1

    keras.utils.set_random_seed(0)
    model, _ = _fit(tmp_path, decay="cosine", learning_rate=0.05)
    keras.utils.set_random_seed(0)
    start = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    rates = 0.05 * (1 + np.cos(np.pi * np.arange(15) / 15)) / 2
    expected = error(start) * np.prod(1 - 8 * rates)
    assert error(model) == pytest.approx(expected, abs=1e-6)
    assert abs(expected / error(start) - (1 - 8 * 0.05) ** 15) > 1e-3
    assert float(model.optimizer.learning_rate) == pytest.approx(0, abs=1e-9)


def test_a_range_is_named_when_several_updates_run_at_once():
    stop = callbacks.StopOnNonFinite(updates=100)
    stop.on_epoch_begin(2)
    stop.on_train_batch_end(9, {"loss": 1.0})
    with pytest.raises(
        NonFiniteLossError, match="loss is nan at updates 211 to 220"
    ):
        stop.on_train_batch_end(19, {"loss": np.nan})


def test_weights_spoilt_by_the_last_update_are_not_saved():
    stop = callbacks.StopOnNonFinite(updates=100)
    stop.on_epoch_begin(2)
    with pytest.raises(NonFiniteLossError, match="val_loss .* at update 300"):
        stop.on_epoch_end(2, {"loss": 1.0, "val_loss": np.nan})


def test_state_keeps_numbers_and_arrays_but_no_settings(tmp_path):
    class Callback(keras.callbacks.Callback):
        pass

    one, two = Callback(), Callback()
    one.path, two.path = "there", "here"
    one.file, two.file = object(), None
    one.best = np.float32(0.25)
    one.weights = [np.arange(3.0), np.eye(2, dtype="int32")]
    one.rows = [{"a": 1, "b": None}, {}]
    arrays = [np.zeros(1)]
    state = backup._state_of(one, arrays)
    for name, value in state.items():
        setattr(two, name, backup._decode(value, arrays))
    assert (two.path, two.file, two.best) == ("here", None, 0.25)
    assert two.rows == one.rows
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
