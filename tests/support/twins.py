"""A program of Keras' guides, with Keras' layers and with ours.

A program is a function of the layers that it takes from `layers.LSTM` and the
like; it returns what it saw, by name. `compare` runs it twice and compares the
two reports.
"""

import types

import keras
import numpy as np
from arrays import close

import keras_ln
from keras_ln.layers.rnn.fast import FastGRU, FastLSTM

NAMES = ("LSTM", "LSTMCell", "GRU", "GRUCell", "LayerNormalization")
NAMES += ("BatchNormalization", "Dense")
THEIRS = types.SimpleNamespace(**{n: getattr(keras.layers, n) for n in NAMES})
OURS = types.SimpleNamespace(
    LSTM=keras_ln.LNLSTM,
    LSTMCell=keras_ln.LNLSTMCell,
    GRU=keras_ln.LNGRU,
    GRUCell=keras_ln.LNGRUCell,
    LayerNormalization=keras_ln.LayerNormalization,
    BatchNormalization=keras_ln.BatchNormalization,
    Dense=keras_ln.WeightNormDense,
)
# Keras' layers with the loop of ours: whole trainings report the same.
FAST = types.SimpleNamespace(
    **vars(THEIRS) | {"LSTM": FastLSTM, "GRU": FastGRU}
)


def compare(program, ours=OURS, theirs=THEIRS):
    """Runs a program with both sets of layers; returns the report of ours.

    Reports need the same names, shapes and dtypes, all values must be finite,
    and what is called a loss must fall: its last value below its first. Those
    of `FAST` are those of Keras, up to rounding.
    """
    expected, found = (_run(program, layers) for layers in (theirs, ours))
    assert {name: (v.shape, v.dtype) for name, v in found.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }
    if ours is FAST:
        # Twenty steps of Adam amplify the rounding of float32.
        close(found, expected, rtol=1e-3, atol=1e-4)
    return found


def _run(program, layers):
    keras.utils.set_random_seed(20160721)
    report = {k: _array(value) for k, value in program(layers).items()}
    for name, value in report.items():
        assert value.dtype.kind != "f" or np.isfinite(value).all(), name
        if name.endswith("loss"):
            assert value[-1] < value[0], f"{name}: {value}"
    return report


def _array(value):
    """A report's entry as NumPy sees it, in its own dtype."""
    if keras.ops.is_tensor(value):
        dtype = keras.backend.standardize_dtype(value.dtype)
        value = keras.ops.convert_to_numpy(value)
        # NumPy has no bfloat16 of its own.
        return value.astype("float32") if dtype == "bfloat16" else value
    return np.asarray(value)


def sentences(padding="post", seed=0, rows=22, steps=9):
    """Padded word numbers (rows, steps), and whether 1 outnumbers 2.

    0 is the padding; one row is full, one has a single word.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, steps, size=rows)
    lengths[:2] = steps, 1
    texts = [rng.integers(1, 12, size=n).tolist() for n in lengths]
    for k, text in enumerate(texts):
        text[0] = 1 + k % 2
        text[1:] = [1 + k % 2 if word < 5 else word for word in text[1:]]
    x = keras.utils.pad_sequences(texts, steps, padding=padding)
    return x, (np.arange(rows) % 2).astype("float32")


def waves(rows=22, steps=12, features=2, seed=0):
    """Noisy sine waves (rows, steps, features) and their next values."""
    rng = np.random.default_rng(seed)
    start = rng.uniform(0.0, 6.0, size=(rows, 1, features))
    time = np.arange(steps + 1)[None, :, None]
    wave = np.sin(start + 0.5 * time).astype("float32")
    wave += 0.05 * rng.normal(size=wave.shape).astype("float32")
    return wave[:, :-1], wave[:, -1, :1]
