"""What other libraries' cells computed, and the same by our layers.

The files in tests/compat/golden were written by scripts of commit a54c12f with
the last releases, TensorFlow-Addons 0.23 and haste 0.5.5, in float64.
"""

import json
from pathlib import Path

import numpy as np
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import named_weights
from tolerances import FLOAT64

import keras_ln
from keras_ln import compat

GOLDEN = Path(__file__).parents[1] / "compat" / "golden"
UNITS = 4


def read(path):
    """The cases of a file, each a dictionary of arrays."""
    cases = {}
    with np.load(path) as file:
        for key in file.files:
            case, _, name = key.rpartition("/")
            cases.setdefault(case or Path(path).stem, {})[name] = file[key]
    return cases


def part(arrays, prefix):
    """Arrays whose names begin with the prefix, by the rest of the name."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def load(case, weights, config=None, **extra):
    """A new layer with a peer's weights, given by their names or numbers."""
    extra = {"dtype": "float64", **extra}
    if case == "haste":
        layer = keras_ln.LNLSTM(UNITS, center=False, **extra)
        return compat.load_haste_lstm(layer, weights)
    if case == "haste_gru":
        arguments = {"groups": "all", "center": False, "use_bias": True}
        layer = keras_ln.LNGRU(UNITS, **arguments, **extra)
        return compat.load_haste_gru(layer, weights)
    config = json.loads(str(config))
    weights = [weights[str(k)] for k in range(len(weights))]
    if case.startswith("lstm"):
        layer = keras_ln.LNLSTM(**compat.tfa_lstm_arguments(config) | extra)
        return compat.load_tfa_lstm(layer, weights)
    arguments = compat.tfa_simple_rnn_arguments(config)
    layer = keras_ln.LNSimpleRNN(**arguments | extra)
    return compat.load_tfa_simple_rnn(layer, weights)


def check(case, arrays, use_fused, tolerance=FLOAT64):
    """Fail unless ours gives a case's outputs, states and gradients."""
    weight_prefix = "weight_" if case.startswith("haste") else "weight"
    config = arrays.get("config")
    if case.endswith("hard_sigmoid"):  # Whose derivative no fused op knows.
        use_fused = use_fused and "auto"
    layer = load(
        case,
        part(arrays, weight_prefix),
        config,
        use_fused=use_fused,
        return_sequences=True,
        return_state=True,
    )
    states = part(arrays, "state")
    outputs, cotangents = part(arrays, "output"), part(arrays, "cotangent")
    result = value_and_gradients(
        layer,
        arrays["x"],
        [cotangents[k] for k in sorted(cotangents)],
        states=[states[k] for k in sorted(states)],
        mask=arrays.get("mask"),
    )
    for k, output in enumerate(result.outputs):
        close(output, outputs[str(k)], f"output {k}", **tolerance)
    # A gradient has the layout of its weight, so it is loaded like one.
    gradients = part(arrays, f"gradient_{weight_prefix}")
    wanted = named_weights(load(case, gradients, config))
    if case == "simple_rnn_without_bias":
        del wanted["beta"]  # theirs has none
    wanted["x"] = arrays["gradient_x"]
    wanted |= {f"state{k}": arrays[f"gradient_state{k}"] for k in states}
    close(result.gradients, wanted, **tolerance)
