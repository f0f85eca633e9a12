"""The LSTMs of torchaudio and icefall, which normalise one sum per step.

Letters: D input features, U units, P the size of h.
"""

from typing import Any

from keras_ln.compat.layouts import Layout, epsilon_of, joined, load
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

_SETTINGS = {
    "normalize": ("state", "sum"),
    "use_bias": False,
    "carry_normalized_state": True,
}
_NORM = (("weight", "gamma"), ("bias", "beta"))
_TORCHAUDIO = Layout(
    "torchaudio's _CustomLSTM with layer_norm=True",
    LNLSTMCell,
    {"x2g.weight": ("kernel", "G D"), "p2g.weight": ("recurrent_kernel", "G U")}
    | {f"g_norm.{theirs}": (f"sum_{ours}", "G") for theirs, ours in _NORM}
    | {f"c_norm.{theirs}": (f"state_{ours}", "U") for theirs, ours in _NORM},
    settings=_SETTINGS | {"groups": "all"},
    free=("epsilon",),
    key=r"(?:(.*)\.)?{}",
    transposed=True,
)
_GATES = ("i", "f", "cx", "o")
_ICEFALL = Layout(
    "icefall's LayerNormLSTM",
    LNLSTMCell,
    {
        "weight_ih": ("kernel", "G D"),
        "weight_hh": ("recurrent_kernel", "G P"),
        "bias_ih": ("sum_bias", "G"),
        "bias_hh": ("sum_bias", "G"),
        "weight_hr": ("projection_kernel", "P U"),
    }
    | {
        f"layernorm_{site}.{theirs}": (
            f"{'state' if site == 'cy' else site}_{ours}",
            "U",
        )
        for site in (*_GATES, "cy")
        for theirs, ours in _NORM
    },
    settings=_SETTINGS | {"groups": "gate", "epsilon": 1e-5},
    key=_TORCHAUDIO.key,
    optional=("bias_ih bias_hh", "weight_hr"),
    transposed=True,
    arrange=lambda cell, arrays: joined(arrays, _GATES),
)


def torchaudio_lstm_arguments(
    hidden_dim: int, layer_norm_epsilon: float = 1e-3
) -> dict[str, Any]:
    """Arguments of `LNLSTM(Cell)` for torchaudio's _CustomLSTM.

    Args:
        hidden_dim: its units.
        layer_norm_epsilon: its epsilon. The default is that of
            `torchaudio.models.emformer_rnnt_base`; `_CustomLSTM` has 1e-5.

    Returns:
        Keyword arguments of `keras_ln.LNLSTM` and `keras_ln.LNLSTMCell`.

    >>> from keras_ln import compat
    >>> compat.torchaudio_lstm_arguments(4)["normalize"]
    ('state', 'sum')
    """
    return {"units": hidden_dim, "epsilon": layer_norm_epsilon, **_SETTINGS}


def icefall_lstm_arguments(
    hidden_size: int, bias: bool = True, proj_size: int = 0
) -> dict[str, Any]:
    """Arguments of `LNLSTM(Cell)` for icefall's LayerNormLSTM.

    Args:
        hidden_size: its units.
        bias: whether it has biases, which it adds before it normalises.
        proj_size: the size of its projection, or 0.

    Returns:
        Keyword arguments of `keras_ln.LNLSTM` and `keras_ln.LNLSTMCell`.

    >>> from keras_ln import compat
    >>> arguments = compat.icefall_lstm_arguments(4)
    >>> arguments["groups"], arguments["use_sum_bias"]
    ('gate', True)
    """
    return {
        **{"units": hidden_size, "groups": "gate", "epsilon": 1e-5},
        **_SETTINGS,
        "use_sum_bias": bool(bias),
        "projection": proj_size or None,
    }


def load_torchaudio_lstm(layers: Any, weights: Any) -> Any:
    """Loads torchaudio's _CustomLSTM with layer_norm=True.

    That LSTM, of the predictor of its RNN-T, normalises x W + h R over all four
    gates and carries the normalised c. Its gates have the order of `LNLSTM`.

    Args:
        layers: an `LNLSTM`, `LNLSTMCell` or `Bidirectional` of them with the
            arguments from `torchaudio_lstm_arguments`, or a list with one for
            every layer; the function builds them if necessary. Sequences are
            batch-first.
        weights: the module, such as `predictor.lstm_layers`, or its
            `state_dict()`, as arrays or as tensors: for every layer x2g.weight
            (4U, D), p2g.weight (4U, U), and weight and bias of g_norm (4U) and
            of c_norm (U). A `state_dict()` does not contain epsilon, so that
            the layer's cannot be checked.

    Returns:
        The given layers.

    Raises:
        ValueError: if the layers' settings, number or weights do not match. All
            layers are then unchanged.

    Source: torchaudio/models/rnnt.py.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = {"x2g.weight": np.ones((16, 3)),
    ...            "p2g.weight": np.ones((16, 4))}
    >>> for k in ("weight", "bias"):
    ...     weights[f"g_norm.{k}"] = np.ones(16)
    ...     weights[f"c_norm.{k}"] = np.ones(4)
    >>> layer = keras_ln.LNLSTM(**compat.torchaudio_lstm_arguments(4))
    >>> y = compat.load_torchaudio_lstm(layer, weights)(np.ones((2, 7, 3)))
    >>> tuple(y.shape)
    (2, 4)
    """
    return load(_TORCHAUDIO, layers, weights, **epsilon_of(weights))


def load_icefall_lstm(layers: Any, weights: Any) -> Any:
    """Loads icefall's LayerNormLSTM.

    That LSTM normalises x W + h R + bias for each gate by itself and carries
    the normalised c. Its gates have the order of `LNLSTM`, and its two biases
    become one `sum_bias`.

    Args:
        layers: an `LNLSTM`, `LNLSTMCell` or `Bidirectional` of them with the
            arguments from `icefall_lstm_arguments`, or a list with one for
            every layer; the function builds them if necessary. Sequences are
            batch-first.
        weights: the module, or its `state_dict()`, as arrays or as tensors: for
            every cell weight_ih (4U, D), weight_hh (4U, P), bias_ih and bias_hh
            (4U) or neither, weight_hr (P, U) or none (P is U), and weight and
            bias (U) of layernorm_i, layernorm_f, layernorm_cx, layernorm_o and
            layernorm_cy.

    Returns:
        The given layers.

    Raises:
        ValueError: if the layers' settings, number or weights do not match. All
            layers are then unchanged.

    Source: https://github.com/k2-fsa/icefall, transducer/rnn.py.
    """
    return load(_ICEFALL, layers, weights)
