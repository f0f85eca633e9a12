"""What loads weights of other libraries, and what it takes.

Letters: D input features, U units, G the columns of an LSTM's gates.
"""

import keras_ln
from keras_ln import compat

D, U = 5, 6
G = 4 * U
GAMMA_BETA, WEIGHT_BIAS = ("gamma", "beta"), ("weight", "bias")
# Settings of cells that normalise one sum, and of haste's.
SUM = {"normalize": ("sum", "state"), "use_bias": False}
SUM |= {"carry_normalized_state": True}
HASTE = {"center": False}


def listed(load):
    return lambda layer, arrays: load(layer, list(arrays.values()))


def kernels(columns):
    return {"kernel": (D, columns), "recurrent_kernel": (U, columns)}


def in_torch(columns):
    """As torch has them, transposed."""
    return {"weight_ih": (columns, D), "weight_hh": (columns, U)}


def of_torch(columns):
    biases = {"bias_ih": columns, "bias_hh": columns}
    shapes = in_torch(columns) | biases
    return {f"{name}_l0": shape for name, shape in shapes.items()}


def norms(sizes, kinds, between="."):
    return {f"{s}{between}{k}": n for s, n in sizes.items() for k in kinds}


# What loads, our layer, arguments of one that it fits, and the shapes of all
# that it loads.
LOADERS = {
    "load_tfa_lstm": (
        *(listed(compat.load_tfa_lstm), keras_ln.LNLSTM),
        {"carry_normalized_state": True},
        kernels(G)
        | {"bias": G}
        | norms({"kernel": G, "recurrent": G, "state": U}, GAMMA_BETA, "_"),
    ),
    "load_tfa_simple_rnn": (
        *(listed(compat.load_tfa_simple_rnn), keras_ln.LNSimpleRNN, {}),
        kernels(U) | {"beta": U, "gamma": U},
    ),
    "load_haste_lstm": (
        *(compat.load_haste_lstm, keras_ln.LNLSTM, HASTE),
        kernels(G) | {"bias": G, "gamma": (2, G), "gamma_h": U, "beta_h": U},
    ),
    "load_haste_gru": (
        *(compat.load_haste_gru, keras_ln.LNGRU),
        HASTE | {"groups": "all", "use_bias": True},
        kernels(3 * U)
        | {"bias": 3 * U, "recurrent_bias": 3 * U, "gamma": (2, 3 * U)},
    ),
    "load_tf1_lstm": (
        *(compat.load_tf1_lstm, keras_ln.LNLSTM),
        SUM | {"groups": "gate", "epsilon": 1e-12},
        norms(
            dict.fromkeys(
                ("input", "transform", "forget", "output", "state"), U
            ),
            *(GAMMA_BETA, "/"),
        )
        | {"kernel": (D + U, G)},
    ),
    "load_torch_lstm": (
        *(compat.load_torch_lstm, keras_ln.LNLSTM, {"normalize": ()}),
        of_torch(G),
    ),
    "load_torch_gru": (
        *(compat.load_torch_gru, keras_ln.LNGRU),
        {"normalize": (), "use_bias": True},
        of_torch(3 * U),
    ),
    "load_fastrnns_lstm": (
        *(compat.load_fastrnns_lstm, keras_ln.LNLSTM),
        {"carry_normalized_state": True, "use_bias": False},
        in_torch(G)
        | norms(
            {"layernorm_i": G, "layernorm_h": G, "layernorm_c": U}, WEIGHT_BIAS
        ),
    ),
    "load_torchaudio_lstm": (
        *(compat.load_torchaudio_lstm, keras_ln.LNLSTM),
        compat.torchaudio_lstm_arguments(U),
        {"x2g.weight": (G, D), "p2g.weight": (G, U)}
        | norms({"g_norm": G, "c_norm": U}, WEIGHT_BIAS),
    ),
    "load_icefall_lstm": (
        *(compat.load_icefall_lstm, keras_ln.LNLSTM),
        compat.icefall_lstm_arguments(U),
        in_torch(G)
        | {"bias_ih": G, "bias_hh": G}
        | norms(
            {f"layernorm_{g}": U for g in ("i", "f", "cx", "o", "cy")},
            WEIGHT_BIAS,
        ),
    ),
    "load_dreamer_gru": (
        *(compat.load_dreamer_gru, keras_ln.LNGRU),
        compat.dreamer_gru_arguments(U),
        {"gru/kernel": (D + U, 3 * U)}
        | norms({"gru/norm": 3 * U}, ("scale", "bias"), "/"),
    ),
}


def loader(name, **others):
    """What loads, a function that makes such a layer, and the shapes."""
    load, cls, arguments, shapes = LOADERS[f"load_{name}"]
    arguments = {"units": U} | arguments | others
    return load, lambda **more: cls(**arguments | more), shapes
