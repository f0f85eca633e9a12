"""One model of all layers: every way to run it, every backend that loads it.

The layers follow each other in one model, so that a mode costs one fit.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from descriptors import LAYERS, B, D, T, randomize

import keras_ln

BACKEND = keras.backend.backend()


def model_of_all_layers(dtype=None, **recurrent):
    """Every public layer, one after the other; `recurrent` is for some."""
    inputs = keras.Input((T, D))
    x = keras.layers.Masking(0.0)(inputs)
    common = {"dtype": dtype, "return_sequences": True, **recurrent}
    stack = [
        keras_ln.RecurrentBatchNorm(max_steps=T, dtype=dtype),
        keras_ln.LNSimpleRNN(3, **common),
        keras_ln.LNGRU(3, **common),
        keras_ln.LNLSTM(3, **common),
        keras_ln.WNLSTM(3, **common),
        keras_ln.BNLSTM(3, max_steps=T, **common),
        keras_ln.BatchNormalization(dtype=dtype),
        keras_ln.LayerNormalization(dtype=dtype),
        keras_ln.WeightNormDense(2, dtype=dtype),
    ]
    for layer in stack:
        x = layer(x)
    assert {type(layer).__name__ for layer in stack} == {
        row.name for row in LAYERS
    }
    return keras.Model(inputs, keras.layers.Flatten()(x))


def data(batches=3):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(4 * batches, T, D)).astype("float32")
    x[::3, -1] = 0.0  # masked
    y = rng.normal(size=(4 * batches, 2 * T)).astype("float32")
    return x, y


def train(model, **options):
    """The losses of two epochs, and the weights after them."""
    model.compile(keras.optimizers.SGD(0.05), "mse", **options)
    history = model.fit(*data(), 4, epochs=2, verbose=0, shuffle=False)
    return history.history["loss"], model.get_weights()


@pytest.fixture(scope="module")
def by_eager_cell_loop():
    model = randomize(model_of_all_layers(use_fused=False))
    start = model.get_weights()
    losses, weights = train(model, run_eagerly=True)
    assert losses[1] < losses[0]
    moved = [abs(a - b).max() for a, b in zip(weights, start, strict=True)]
    assert min(moved) > 0.0
    return losses, weights


MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "compiled": {"jit_compile": True},
    "auto": {"jit_compile": "auto"},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_trains_alike(mode, by_eager_cell_loop):
    expected_losses, expected_weights = by_eager_cell_loop
    model = randomize(model_of_all_layers())
    losses, weights = train(model, **MODES[mode])
    # Six float32 steps through five normalised recurrences.
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-3)
    for value, expected in zip(weights, expected_weights, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-2, atol=2e-3)


def test_the_cell_loop_compiles(by_eager_cell_loop):
    model = randomize(model_of_all_layers(use_fused=False))
    losses, _ = train(model, jit_compile=BACKEND != "torch")
    np.testing.assert_allclose(losses, by_eager_cell_loop[0], rtol=1e-3)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains(policy, by_eager_cell_loop):
    model = randomize(model_of_all_layers(dtype=policy))
    losses, weights = train(model)
    # 8 bits of bfloat16 through nine layers.
    np.testing.assert_allclose(losses, by_eager_cell_loop[0], rtol=0.1)
    assert all(np.isfinite(weight).all() for weight in weights)
    assert {weight.dtype for weight in weights} == {np.dtype("float32")}


LOAD = """
import sys
import keras
import numpy as np
import keras_ln
model = keras.saving.load_model(sys.argv[1])
file = np.load(sys.argv[2])
y = keras.ops.convert_to_numpy(model(file["x"], training=False))
np.testing.assert_allclose(y, file["y"], rtol=1e-3, atol=1e-4)
print("same on", keras.backend.backend())
"""


def test_one_file_loads_on_every_backend(tmp_path):
    model = randomize(model_of_all_layers())
    x = data(1)[0][:B]
    y = keras.ops.convert_to_numpy(model(x, training=False))
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "data.npz", x=x, y=y)
    installed = [
        name
        for name in ("tensorflow", "jax", "torch")
        if importlib.util.find_spec(name)
    ]
    assert BACKEND in installed
    for name in installed:
        run = subprocess.run(
            [sys.executable, "-c", LOAD, "model.keras", "data.npz"],
            cwd=tmp_path,
            env=os.environ
            | {
                "KERAS_BACKEND": name,
                "PYTHONPATH": str(pathlib.Path(__file__).parents[1]),
            },
            capture_output=True,
            text=True,
        )
        assert f"same on {name}" in run.stdout, run.stderr
