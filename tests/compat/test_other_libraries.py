"""Ours against TensorFlow-Addons, haste and torchaudio as installed.

tests/peers/run.py installs them, lets them compute and starts these tests.
"""

import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest
from arrays import close
from peer_goldens import GOLDEN, UNITS, check, read

import keras_ln
from keras_ln import compat

pytestmark = pytest.mark.peers

FILES = ("tensorflow_addons.npz", "haste.npz", "haste_gru.npz")
CASES = sorted(case for name in FILES for case in read(GOLDEN / name))


def fresh():
    """What the libraries computed just now."""
    folder = os.environ.get("KERAS_LN_PEERS")
    if folder is None:
        pytest.fail("Start these tests with python tests/peers/run.py.")
    return {
        case: arrays
        for name in FILES
        for case, arrays in read(Path(folder, name)).items()
    }


@pytest.mark.parametrize("use_fused", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, use_fused):
    check(case, fresh()[case], use_fused)


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


def test_the_files_that_are_kept():
    """The suite compares with them where no library is installed."""
    found = fresh()
    kept = {c: a for name in FILES for c, a in read(GOLDEN / name).items()}
    assert set(found) == set(kept)
    for case, arrays in kept.items():
        for name, array in arrays.items():
            if array.dtype == "float64":
                close(
                    found[case][name],
                    array,
                    f"{case}/{name}",
                    rtol=1e-9,
                    atol=1e-12,
                )


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
