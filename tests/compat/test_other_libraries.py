"""Ours against TensorFlow-Addons and torchaudio as installed.

tests/peers/run.py installs them and starts these tests.
"""

import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest
from arrays import close
from peer_goldens import UNITS

import keras_ln
from keras_ln import compat

pytestmark = pytest.mark.peers


def test_torchaudio():
    """Of several layers, given as a module."""
    # Here, as pytest imports every file to look for examples in it.
    import torch
    from torchaudio.models.rnnt import _CustomLSTM

    rng = np.random.default_rng(0)
    arguments = compat.torchaudio_lstm_arguments(UNITS)
    modules, layers = torch.nn.ModuleList(), []
    for features in (3, UNITS):
        modules.append(_CustomLSTM(features, UNITS, True, 1e-3).double())
        layers.append(
            keras_ln.LNLSTM(return_sequences=True, dtype="float64", **arguments)
        )
    with torch.no_grad():
        for weight in modules.parameters():
            weight.copy_(torch.tensor(rng.normal(size=weight.shape)))
    compat.load_torchaudio_lstm(layers, modules)
    x = rng.normal(size=(2, 7, 3))
    theirs = torch.tensor(x).transpose(0, 1)
    for module in modules:
        theirs, _ = module(theirs, None)
    expected = theirs.detach().transpose(0, 1).numpy()
    close(layers[1](layers[0](x)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.promise("a [moved]")
def test_a_model_moves_as_the_documentation_says():
    """docs/dump_tfa.py in the old environment, and its page in the new one."""
    folder = Path(os.environ["KERAS_LN_PEERS"])

    def moved(name):
        with np.load(folder / "old_model.npz") as old:
            config = json.loads(str(old[f"{name}/config"]))
            count = int(old[f"{name}/count"])
            return config, [old[f"{name}/{k}"] for k in range(count)]

    y = np.load(folder / "old_model.outputs.npz")["x"]
    for name in ("lstm", "two/cell_0", "two/cell_1"):
        config, weights = moved(name)
        lstm = keras_ln.LNLSTM(
            return_sequences=True, **compat.tfa_lstm_arguments(config)
        )
        compat.load_tfa_lstm(lstm, weights)
        y = lstm(y)
    config, weights = moved("simple")
    simple = keras_ln.LNSimpleRNN(**compat.tfa_simple_rnn_arguments(config))
    compat.load_tfa_simple_rnn(simple, weights)
    y = simple(y)
    config, weights = moved("dense")
    dense = keras.layers.Dense(config["units"])
    dense.build(y.shape)
    dense.set_weights(weights)
    expected = np.load(folder / "old_model.outputs.npz")["y"]
    close(dense(y), expected, rtol=1e-4, atol=1e-5)
