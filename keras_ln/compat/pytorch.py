"""torch.nn.LSTM and torch.nn.GRU.

Letters: D input features, U units.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_ln.compat.loading import as_array, cell_of, check_fit, load
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.ln_gru import LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

_NAME = re.compile(r"(weight|bias)_(ih|hh)_(l\d+(?:_reverse)?)")
_BIASES = {"bias": "kernel_beta", "recurrent_bias": "recurrent_beta"}
_Arrays = dict[str, np.ndarray]


def load_torch_lstm(layers: Any, weights: Any) -> Any:
    """Loads the weights of torch.nn.LSTM, whose gates stand in our order.

    A layer with `normalize=()` then computes what torch's computes. One that
    normalises keeps its gammas and betas, and starts from torch's kernels.

    Args:
        layers: an `LNLSTM`, `LNLSTMCell` or `Bidirectional` of them, or a list
            with one for every layer of the LSTM; they are built if they are
            not yet. Sequences are batch-first.
        weights: the LSTM, or its `state_dict()`, as arrays or as tensors.

    Returns:
        The layers, as they came.

    Raises:
        ValueError: if the number of layers and directions is another one, or
            sizes and biases are; for an LSTM with `proj_size`. No layer has
            changed then.

    Source: torch.nn.LSTM.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = {
    ...     "weight_ih_l0": np.ones((16, 3)), "bias_ih_l0": np.ones(16),
    ...     "weight_hh_l0": np.ones((16, 4)), "bias_hh_l0": np.ones(16),
    ... }
    >>> layer = keras_ln.LNLSTM(4, normalize=())
    >>> tuple(compat.load_torch_lstm(layer, weights)(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    return _load(layers, weights, LNLSTMCell, "LSTM", _lstm)


def load_torch_gru(layers: Any, weights: Any) -> Any:
    """Loads the weights of torch.nn.GRU.

    The order of its gates, r, z, n, is changed to ours, z, r, h, and the update
    gate to 1 - z: torch's keeps h where it is 1. A layer with `normalize=()`
    and `use_bias=True` then computes what torch's computes. One that normalises
    keeps its gammas, and starts from torch's kernels.

    Args:
        layers: an `LNGRU`, `LNGRUCell` or `Bidirectional` of them, or a list
            with one for every layer of the GRU; they are built if they are not
            yet. Sequences are batch-first.
        weights: the GRU, or its `state_dict()`, as arrays or as tensors.

    Returns:
        The layers, as they came.

    Raises:
        ValueError: if the number of layers and directions is another one, or
            sizes and biases are. No layer has changed then.

    Source: torch.nn.GRU.
    """
    return _load(layers, weights, LNGRUCell, "GRU", _gru)


def _lstm(arrays: _Arrays, shapes: Mapping[str, Any]) -> _Arrays:
    if "bias" in arrays:
        arrays["bias"] = arrays["bias"] + arrays.pop("recurrent_bias")
    return arrays


def _gru(arrays: _Arrays, shapes: Mapping[str, Any]) -> _Arrays:
    for name, array in arrays.items():
        r, z, n = np.split(array, 3, axis=-1)
        arrays[name] = np.concatenate([-z, r, n], axis=-1)
    # Where a beta does the same there need be no such bias.
    for bias, beta in _BIASES.items():
        if bias in arrays and bias not in shapes and beta in shapes:
            arrays[beta] = arrays.pop(bias)
    return arrays


def _load(
    layers: Any,
    weights: Any,
    cell_class: type[BaseCell],
    name: str,
    arranged: Callable[[_Arrays, Mapping[str, Any]], _Arrays],
) -> Any:
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    parts = _parts(weights, name)
    given = layers if isinstance(layers, list | tuple) else [layers]
    ours: list[Any] = []
    for layer in given:
        two = isinstance(layer, keras.layers.Bidirectional)
        ours += [layer.forward_layer, layer.backward_layer] if two else [layer]
    if len(ours) != len(parts):
        raise ValueError(
            f"Argument `layers` must have a layer for each of {name}'s "
            f"{', '.join(parts)}. Received: {len(ours)}, where Bidirectional "
            "counts twice."
        )
    found = []
    for layer, arrays in zip(ours, parts.values(), strict=True):
        cell = cell_of(layer, cell_class)
        shapes = cell.weight_shapes(arrays["kernel"].shape[0])
        found.append((layer, cell, arranged(arrays, shapes)))
    for each in found:
        check_fit(*each, normalized=True)
    for each in found:
        load(*each, normalized=True)
    # Otherwise Keras would build them when they are called.
    for layer in given:
        if isinstance(layer, keras.layers.Bidirectional):
            layer.built = True
    return layers


def _parts(weights: Any, name: str) -> dict[str, _Arrays]:
    """The arrays of every layer and direction by our names, in torch's order.

    Kernels (D, nU) and (U, nU), and the two biases (nU).
    """
    known = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel"}
    known |= {"bias_ih": "bias", "bias_hh": "recurrent_bias"}
    names = list(weights) if isinstance(weights, Mapping) else []
    matches = {given: _NAME.fullmatch(str(given)) for given in names}
    parts: dict[str, _Arrays] = {}
    for given, match in matches.items():
        if match is not None:
            array = as_array(weights[given])
            kind, side, part = match.groups()
            parts.setdefault(part, {})[known[f"{kind}_{side}"]] = array.T
    wrong = [str(given) for given, match in matches.items() if match is None]
    whole = [{"kernel", "recurrent_kernel"}, {*known.values()}]
    if wrong or not parts or any(set(p) not in whole for p in parts.values()):
        hint = ""
        if any(given.startswith("weight_hr") for given in wrong):
            hint = " An LSTM with `proj_size` has no counterpart here."
        raise ValueError(
            f"Argument `weights` must be a torch.nn.{name} or its "
            "state_dict(), with weight_ih_l0, weight_hh_l0, bias_ih_l0, "
            "bias_hh_l0 and so on. Received: "
            f"{', '.join(map(str, names)) or type(weights)}."
            f"{hint}"
        )
    order = sorted(parts, key=lambda p: (int(re.findall(r"\d+", p)[0]), p))
    return {part: parts[part] for part in order}
