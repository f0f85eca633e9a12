"""The layers of haste.

Source: https://github.com/lmnt-com/haste.
Letters: D input features, U units.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_ln.compat.loading import (
    as_floats,
    cell_of,
    check_matrices,
    check_one_mean,
    check_settings,
    list_shapes,
    load,
    names_in,
    state_dict,
)
from keras_ln.layers.rnn.ln_gru import LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

_HASTE_GRU = ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "gamma")
_HASTE_LSTM = {
    "kernel": "kernel",
    "recurrent_kernel": "recurrent_kernel",
    "bias": "bias",
    "gamma_h": "state_gamma",
    "beta_h": "state_beta",
}


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
        ValueError: if the layer's settings do not fit (the message has the
            arguments that do) or the weights do not; for a stateful layer that
            is not built.

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
    cell = cell_of(layer, LNLSTMCell)
    zoneout = getattr(weights, "zoneout", cell.zoneout)
    if (cell.zoneout, cell.cell_zoneout) != (zoneout, 0.0):
        raise ValueError(
            f"haste's LayerNormLSTM applies zoneout={zoneout} only to h, at "
            "inference too. Make the layer with LNLSTM(units, center=False, "
            f"zoneout={zoneout}). Received: zoneout={cell.zoneout}, "
            f"cell_zoneout={cell.cell_zoneout}."
        )
    if cell.carry_normalized_state or cell.epsilon != 1e-5:
        raise ValueError(
            "haste's LayerNormLSTM carries c without normalising it, and has "
            "an epsilon of 1e-5. Make the layer with LNLSTM(units, "
            "center=False). Received: "
            f"carry_normalized_state={cell.carry_normalized_state}, "
            f"epsilon={cell.epsilon}."
        )
    check_one_mean(cell, "haste's LayerNormLSTM")
    arrays = _arrays(weights, (*_HASTE_LSTM, "gamma"), "LayerNormLSTM")
    gamma = arrays.pop("gamma")
    arrays = {_HASTE_LSTM[name]: array for name, array in arrays.items()}
    columns = 4 * arrays["recurrent_kernel"].shape[0]
    received = {n: a.shape for n, a in arrays.items()} | {"gamma": gamma.shape}
    if gamma.shape != (2, columns) or any(
        array.shape[-1:] != (columns,)
        for name, array in arrays.items()
        if not name.startswith("state")
    ):
        raise ValueError(
            "Argument `weights` must hold gamma of shape (2, 4 units), and "
            "kernels and bias of 4 units columns. Received: "
            f"{list_shapes(received)}."
        )
    arrays["kernel_gamma"], arrays["recurrent_gamma"] = gamma
    for name, array in arrays.items():
        if not name.startswith("state"):
            i, candidate, f, o = np.split(array, 4, axis=-1)
            arrays[name] = np.concatenate([i, f, candidate, o], axis=-1)
    return load(layer, cell, arrays)


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
        ValueError: if the layer's settings do not fit (the message has the
            arguments that do) or the weights do not; for a stateful layer that
            is not built.

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
    cell = cell_of(layer, LNGRUCell)
    zoneout = getattr(weights, "zoneout", cell.zoneout)
    settings = {
        "groups": "all",
        "center": False,
        "use_bias": True,
        "epsilon": 1e-5,
        "zoneout": zoneout,
    }
    check_settings(cell, "haste's LayerNormGRU", settings)
    arrays = _arrays(weights, _HASTE_GRU, "LayerNormGRU")
    gamma = arrays.pop("gamma")
    units = arrays["recurrent_kernel"].shape[0]
    if gamma.shape != (2, 3 * units):
        raise ValueError(
            "Argument `weights` must hold gamma of shape (2, 3 units), with "
            f"{units} units. Received: {gamma.shape}."
        )
    arrays["kernel_gamma"], arrays["recurrent_gamma"] = gamma
    for array in arrays.values():
        if array.ndim == 1:
            array[:units] *= -1.0
    return load(layer, cell, arrays)


def _arrays(
    weights: Any, names: tuple[str, ...], kind: str
) -> dict[str, np.ndarray]:
    """Copies of the arrays of a layer of haste, by its names."""
    weights = state_dict(weights)
    given = weights if isinstance(weights, Mapping) else {}
    if set(given) != set(names):
        raise ValueError(
            f"Argument `weights` must be a {kind} of haste or its state_dict() "
            f"with {', '.join(sorted(names))}. Received: {names_in(weights)}."
        )
    arrays = {name: np.array(as_floats(name, given[name])) for name in names}
    check_matrices(arrays)
    return arrays
