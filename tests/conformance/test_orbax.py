"""Orbax finds weights by their paths, in a second model of a process too."""

import keras
import numpy as np
import pytest
from descriptors import SEQUENCE_LAYERS, B, U, randomize

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_checkpoint_loads_into_a_second_model(row, tmp_path):
    def make():
        inputs = keras.Input(row.input_shape[1:])
        layer = row.make(name="layer")
        model = keras.Sequential([inputs, layer], name="model")
        model.compile("adam", "mse")
        return model

    saved, loaded = randomize(make()), randomize(make(), seed=1)
    x = np.random.default_rng(0).normal(size=row.input_shape)
    callback = keras.callbacks.OrbaxCheckpoint(
        tmp_path / "checkpoint", save_on_background=False
    )
    saved.fit(x, np.zeros((B, U)), verbose=0, callbacks=[callback])
    loaded.load_weights(tmp_path / "checkpoint")
    for new, old in zip(loaded.weights, saved.weights, strict=True):
        np.testing.assert_array_equal(
            new.numpy(), old.numpy(), err_msg=new.path
        )
