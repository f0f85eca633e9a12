"""Callbacks that are hard to see from the outside of a script."""

import keras
import numpy as np
import permutation_invariant_mnist as script
import pytest
import sequential_mnist_model
from arrays import to_numpy
from common import backup, callbacks, files, runs
from common.errors import NonFiniteLossError
from keras import layers
from scripts import parsed

import keras_ln


def _fit(folder, spoilt_at=None):
    """A regression over 3 updates an epoch; one target may be infinite."""
    args = parsed(script.__name__, "--epochs", "5", "--output-dir", folder)
    args.resume, x = True, np.ones((2, 3), "float32")

    def batches(first):
        for update in range(first, 100):
            bad = update == (-1 if spoilt_at is None else spoilt_at)
            yield x, np.full((2, 1), np.inf if bad else 1.0, "float32")

    for run in runs.of(args, updates=3):
        with run:
            inputs = keras.Input((3,))
            model = keras.Model(inputs, layers.Dense(1)(inputs))
            model.compile("sgd", "mse")
            model.fit(
                batches(run.first),
                steps_per_epoch=3,
                shuffle=False,
                epochs=run.epochs,
                validation_data=(x, np.ones((2, 1))),
                callbacks=run.callbacks(model),
                verbose=0,
            )


@pytest.mark.parametrize("update", [7, 8])
def test_the_update_is_named_and_the_last_good_state_kept(
    tmp_path, capsys, update
):
    _fit(tmp_path, spoilt_at=update)
    message = f"loss is inf at update {update + 1}; the last good model"
    assert message in capsys.readouterr().err
    good = keras.models.load_model(tmp_path / "model.keras", compile=False)
    assert all(np.isfinite(w).all() for w in good.get_weights())
    assert backup.Backup(tmp_path / runs.BACKUP).epoch == 2
    # What went wrong mended, the run goes on.
    _fit(tmp_path)
    rows = files.read_csv(tmp_path / "history.csv")
    assert [row["updates"] for row in rows] == [3, 6, 9, 12, 15]


def test_several_updates_at_once_and_the_last_one():
    stop = callbacks.StopOnNonFinite(updates=100)
    stop.on_epoch_begin(2)
    stop.on_train_batch_end(9, {"loss": 1.0})
    with pytest.raises(NonFiniteLossError, match="nan at updates 211 to 220"):
        stop.on_train_batch_end(19, {"loss": np.nan})
    # Weights that the last update spoilt are not saved.
    with pytest.raises(NonFiniteLossError, match="val_loss .* at update 300"):
        stop.on_epoch_end(2, {"loss": 1.0, "val_loss": np.nan})


def test_batches_are_averaged_anew_before_an_evaluation():
    """The initial noise too, which steps of black pixels have alone."""
    x = np.random.default_rng(0).random((40, 4, 1), np.float32)
    x[:, 0] = 0
    keras.utils.set_random_seed(0)
    model = sequential_mnist_model.build_model("batch", units=3, steps=4)
    noise = next(y for y in model.layers if hasattr(y, "averaging"))
    before = model.get_weights()
    fresh = callbacks.FreshStatistics(x, 8)
    fresh.set_model(model)
    model.jit_compile = False
    fresh.on_test_begin()
    found = model.get_weights()
    assert fresh.number == 5 and noise.averaging is False
    noise.averaging = True
    keras_ln.reestimate_statistics(model, x, 8, 5)
    changed = 0
    for own, one, two in zip(model.get_weights(), found, before, strict=True):
        # Other noise, the same statistics.
        np.testing.assert_allclose(own, one, atol=0.05)
        changed += not np.array_equal(one, two)
    assert changed >= 4


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_the_lstm_that_reads_pixels(norm):
    """What it sees, its first weights, and the noise of its first state."""
    model = sequential_mnist_model.build_model(norm, units=3, steps=4)
    (lstm,) = (x for x in model.layers if isinstance(x, layers.RNN))
    start = to_numpy(lstm.cell.recurrent_kernel)
    for gate in np.split(start, 4, axis=1):
        np.testing.assert_array_equal(gate, np.eye(3))
    x = np.random.default_rng(0).random((2, 4, 1), np.float32)
    seen = keras.Model(model.input, lstm.input)(x)
    seen = seen[0] if isinstance(seen, (list, tuple)) else seen
    np.testing.assert_allclose(
        to_numpy(seen), np.concatenate([x, 1 - x], axis=-1)
    )
    if norm != "batch":
        return
    x = np.zeros((2, 4, 1), "float32")
    one, two = model(x, training=False), model(x)
    np.testing.assert_array_equal(*map(to_numpy, (one, two)))
    # Rows of equal pixels differ by their noise in training alone.
    one, two = to_numpy(model(x, training=True))
    assert np.abs(one - two).max() > 1e-3
