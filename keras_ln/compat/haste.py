"""The layers of haste. Letters: D input features, U units."""

from typing import Any

from keras_ln.compat.layouts import Arrays, Layout, load
from keras_ln.layers.rnn.ln_gru import LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell


def _negated(cell: Any, arrays: Arrays) -> Arrays:
    for array in arrays.values():
        if array.ndim == 1:
            array[: cell.units] *= -1.0
    return arrays


_KERNELS = {
    "kernel": ("kernel", "D G"),
    "recurrent_kernel": ("recurrent_kernel", "U G"),
    "bias": ("bias", "G"),
    "gamma": ("kernel_gamma recurrent_gamma", "2 G"),
}
_LSTM = Layout(
    "haste's LayerNormLSTM",
    LNLSTMCell,
    _KERNELS | {"gamma_h": ("state_gamma", "U"), "beta_h": ("state_beta", "U")},
    settings={
        "cell_zoneout": 0.0,
        "center": False,
        "carry_normalized_state": False,
        "epsilon": 1e-5,
        "groups": "all",
    },
    free=("zoneout",),
    # haste's are i, c, f, o.
    gates=(0, 2, 1, 3),
)
_GRU = Layout(
    "haste's LayerNormGRU",
    LNGRUCell,
    _KERNELS | {"recurrent_bias": ("recurrent_bias", "G")},
    settings={
        "groups": "all",
        "center": False,
        "use_bias": True,
        "epsilon": 1e-5,
    },
    free=("zoneout",),
    arrange=_negated,
)


def load_haste_lstm(layer: Any, weights: Any) -> Any:
    """Loads the weights of haste's LayerNormLSTM.

    The function reorders the gates from haste's i, c, f, o to i, f, c, o. In
    haste the normalised products have no beta, epsilon is 1e-5, and zoneout
    applies only to h, in training and at inference.

    Args:
        layer: an `LNLSTM` or `LNLSTMCell` with `center=False`, all sites,
            epsilon 1e-5 and haste's `zoneout`, which a `state_dict()` does not
            contain; the function builds it if necessary.
        weights: the LayerNormLSTM, or its `state_dict()`: kernel (D, 4U),
            recurrent_kernel (U, 4U), bias (4U), gamma (2, 4U), gamma_h and
            beta_h (U), as arrays or as tensors of torch.

    Returns:
        The layer.

    Raises:
        ValueError: unless the layer's settings (the message has those that do)
            and the weights fit; for a stateful layer that is not built.

    Source: https://github.com/lmnt-com/haste.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> shapes = {
    ...     "kernel": (3, 16), "recurrent_kernel": (4, 16), "bias": 16,
    ...     "gamma": (2, 16), "gamma_h": 4, "beta_h": 4,
    ... }
    >>> weights = {name: np.ones(shape) for name, shape in shapes.items()}
    >>> layer = keras_ln.LNLSTM(4, center=False)
    >>> tuple(compat.load_haste_lstm(layer, weights)(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    return load(_LSTM, layer, weights, **_zoneout(weights))


def load_haste_gru(layer: Any, weights: Any) -> Any:
    """Loads the weights of haste's LayerNormGRU.

    haste normalises z, r and the candidate together. Its z = 1 keeps h, but in
    `LNGRU` z = 1 takes the candidate, so the gammas and biases of z change
    their signs.

    Args:
        layer: an `LNGRU` or `LNGRUCell` with `groups="all"`, `center=False`,
            `use_bias=True`, both sites, epsilon 1e-5 and haste's `zoneout`,
            which a `state_dict()` does not contain; the function builds it if
            necessary.
        weights: the LayerNormGRU, or its `state_dict()`: kernel (D, 3U),
            recurrent_kernel (U, 3U), bias and recurrent_bias (3U), gamma
            (2, 3U), as arrays or as tensors of torch.

    Returns:
        The layer.

    Raises:
        ValueError: unless the layer's settings (the message has those that do)
            and the weights fit; for a stateful layer that is not built.

    Source: https://github.com/lmnt-com/haste.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> shapes = {
    ...     "kernel": (3, 12), "recurrent_kernel": (4, 12), "bias": 12,
    ...     "recurrent_bias": 12, "gamma": (2, 12),
    ... }
    >>> weights = {name: np.ones(shape) for name, shape in shapes.items()}
    >>> layer = keras_ln.LNGRU(4, groups="all", center=False, use_bias=True)
    >>> tuple(compat.load_haste_gru(layer, weights)(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    return load(_GRU, layer, weights, **_zoneout(weights))


def _zoneout(weights: Any) -> dict[str, float]:
    """The rate of a layer of haste; a `state_dict()` does not contain it."""
    return {"zoneout": weights.zoneout} if hasattr(weights, "zoneout") else {}
