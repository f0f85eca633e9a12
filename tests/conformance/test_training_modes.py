"""One model of all layers: every way to run it, every backend that loads it.

The layers follow each other in one model, so that a mode costs one fit.
"""

import functools

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import LAYERS, B, D, T, randomize
from scripts import run_python

import keras_ln

pytestmark = pytest.mark.every_backend

BACKEND = keras.backend.backend()


# Where all of them take minutes: torch.compile writes out every loop.
FEW = (
    *("LNSimpleRNN", "LayerNormalization"),
    *("WeightNormDense", "WeightNormalization"),
)


def model_of_layers(names=None, dtype="float64", **recurrent):
    """The named layers, or all, one after the other.

    Batch norm over few rows amplifies rounding: what should be equal is
    compared in float64.
    """
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
        keras_ln.WeightNormalization(keras.layers.Dense(2, dtype=dtype)),
    ]
    every = {type(layer).__name__ for layer in stack}
    assert every == {row.name for row in LAYERS}
    inputs = keras.Input((T, D))
    x = keras.layers.Masking(0.0, dtype=dtype)(inputs)
    for layer in stack:
        if type(layer).__name__ in (names or every):
            x = layer(x)
    return keras.Model(inputs, keras.layers.Flatten(dtype=dtype)(x))


def data(rows=10):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, T, D)).astype("float32")
    x[::3, -1] = 0.0  # masked
    y = rng.normal(size=(rows, 2 * T)).astype("float32")
    return x, y


def train(model, optimizer=None, **options):
    """The losses of two epochs, and the weights after them."""
    optimizer = optimizer or keras.optimizers.SGD(0.02)
    model.compile(optimizer, "mse", **options)
    # Batches of 8 and 2: a ragged last one.
    history = model.fit(*data(), 8, epochs=2, verbose=0, shuffle=False)
    return history.history["loss"], model.get_weights()


@functools.cache
def by_cell_loop(names):
    """What every mode should give."""
    model = randomize(model_of_layers(names, use_fused=False))
    start = model.get_weights()
    # JAX takes a minute without compiling.
    losses, weights = train(model, run_eagerly=BACKEND != "jax")
    assert losses[1] < losses[0]
    moved = [abs(a - b).max() for a, b in zip(weights, start, strict=True)]
    assert min(moved) > 0.0
    return losses, weights


# "auto", the default, is the mode of the mixed precision test below.
MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "compiled": {"jit_compile": True},
}


# Half a minute or two: operation by operation, a loop unrolled by
# torch.compile, or beside "graph" the mode that `fit` takes less often.
LONG = {
    ("tensorflow", "eager"),
    ("tensorflow", "compiled"),
    ("jax", "eager"),
    ("jax", "graph"),
    ("torch", "compiled"),
}


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            mode, marks=[pytest.mark.full] if (BACKEND, mode) in LONG else []
        )
        for mode in MODES
    ],
)
def test_every_mode_trains_alike(mode):
    names = FEW if (BACKEND, mode) == ("torch", "compiled") else None
    expected_losses, expected_weights = by_cell_loop(names)
    model = randomize(model_of_layers(names))
    losses, weights = train(model, **MODES[mode])
    # Losses are reported in float32.
    close(losses, expected_losses, rtol=1e-5)
    close(weights, expected_weights, rtol=1e-7, atol=1e-7)


def test_mixed_precision_trains():
    # XLA takes half a minute for all of them.
    names = None if BACKEND == "torch" else FEW
    model = randomize(model_of_layers(names, dtype="mixed_float16"))
    start = model.get_weights()
    # Keras' own first scale, 2 ** 15, takes some steps to come down.
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.02), initial_scale=2.0**7
    )
    losses, weights = train(model, optimizer)
    assert losses[1] < losses[0] < np.inf
    for value, before in zip(weights, start, strict=True):
        assert value.dtype == "float32" and np.isfinite(value).all()
        assert abs(value - before).max() > 0.0


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


# Back and forth between TensorFlow and the others.
READERS = {
    "tensorflow": ["jax", "torch"],
    "jax": ["tensorflow"],
    "torch": ["tensorflow"],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a model, inputs and outputs."""
    folder = tmp_path_factory.mktemp("saved")
    model = randomize(model_of_layers(dtype="float32"))
    x = data(B)[0]
    y = keras.ops.convert_to_numpy(model(x, training=False))
    model.save(folder / "model.keras")
    np.savez(folder / "data.npz", x=x, y=y)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("reader", READERS[BACKEND])
def test_one_file_loads_on_every_backend(saved, reader):
    files = saved / "model.keras", saved / "data.npz"
    run = run_python("-c", LOAD, *files, KERAS_BACKEND=reader)
    assert f"same on {reader}" in run.stdout, run.stderr
