"""torch.nn.LSTM, torch.nn.GRU, and the LN-LSTM of torch's fastrnns.

Letters: D input features, U units.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.compat.loading import (
    as_floats,
    cell_of,
    check_fit,
    check_one_mean,
    check_settings,
    list_shapes,
    load,
    state_dict,
)
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.ln_gru import LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

_NAME = re.compile(r"(weight|bias)_(ih|hh)_(l\d+(?:_reverse)?)")
_BIASES = {"bias": "kernel_beta", "recurrent_bias": "recurrent_beta"}
_Arrays = dict[str, np.ndarray]
_FASTRNNS = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel"} | {
    f"layernorm_{letter}.{theirs}": f"{site}_{ours}"
    for letter, site in (("i", "kernel"), ("h", "recurrent"), ("c", "state"))
    for theirs, ours in (("weight", "gamma"), ("bias", "beta"))
}


def load_torch_lstm(layers: Any, weights: Any) -> Any:
    """Loads the weights of torch.nn.LSTM, which has the same order of gates.

    A layer with `normalize=()` then computes the same results as torch. A layer
    that normalises keeps its gammas and betas, and starts from torch's kernels.

    Args:
        layers: an `LNLSTM`, `LNLSTMCell` or `Bidirectional` of them, or a list
            with one for every layer of the LSTM; the function builds them if
            necessary. Sequences are batch-first.
        weights: the LSTM, or its `state_dict()`, as arrays or as tensors.

    Returns:
        The given layers.

    Raises:
        ValueError: if the number of layers and directions, or sizes, dtypes or
            biases do not match; for an LSTM with `proj_size`. All layers are
            then unchanged.

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
    return _load(layers, _parts(weights, "LSTM"), LNLSTMCell, "LSTM", _lstm)


def load_torch_gru(layers: Any, weights: Any) -> Any:
    """Loads the weights of torch.nn.GRU.

    The function reorders the gates from torch's r, z, n to z, r, h, and turns
    the update gate into 1 - z, because torch's z = 1 keeps h. A layer with
    `normalize=()` and `use_bias=True` then computes the same results as torch.
    A layer that normalises keeps its gammas, and starts from torch's kernels.

    Args:
        layers: an `LNGRU`, `LNGRUCell` or `Bidirectional` of them, or a list
            with one for every layer of the GRU; the function builds them if
            necessary. Sequences are batch-first.
        weights: the GRU, or its `state_dict()`, as arrays or as tensors.

    Returns:
        The given layers.

    Raises:
        ValueError: if the number of layers and directions, or sizes, dtypes or
            biases do not match. All layers are then unchanged.

    Source: torch.nn.GRU.
    """
    return _load(layers, _parts(weights, "GRU"), LNGRUCell, "GRU", _gru)


def load_fastrnns_lstm(layers: Any, weights: Any) -> Any:
    """Loads the LayerNormLSTM of torch's benchmarks/fastrnns, or a copy of it.

    That LSTM normalises the four gates together, in the same order as
    `LNLSTM`, has no bias, and carries the normalised c.

    Args:
        layers: an `LNLSTM`, `LNLSTMCell` or `Bidirectional` of them with the
            arguments of the example, or a list with one for every layer; the
            function builds them if necessary. Sequences are batch-first.
        weights: the module, or its `state_dict()`, as arrays or as tensors:
            for every cell weight_ih, weight_hh, and weight and bias of
            layernorm_i, layernorm_h and layernorm_c.

    Returns:
        The given layers.

    Raises:
        ValueError: if the layers' settings, number or weights do not match. All
            layers are then unchanged.

    Source: https://github.com/pytorch/pytorch/blob/main/benchmarks/fastrnns/custom_lstms.py.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = {"weight_ih": np.ones((16, 3)), "weight_hh": np.ones((16, 4))}
    >>> for letter, size in (("i", 16), ("h", 16), ("c", 4)):
    ...     weights[f"layernorm_{letter}.weight"] = np.ones(size)
    ...     weights[f"layernorm_{letter}.bias"] = np.ones(size)
    >>> layer = keras_ln.LNLSTM(
    ...     4, carry_normalized_state=True, use_bias=False
    ... )
    >>> y = compat.load_fastrnns_lstm(layer, weights)(np.ones((2, 7, 3)))
    >>> tuple(y.shape)
    (2, 4)
    """
    settings = {
        "carry_normalized_state": True,
        "use_bias": False,
        "epsilon": 1e-5,
    }
    name = "LayerNormLSTM"
    parts = _fastrnns_parts(weights)

    def checked(cell: Any, arrays: _Arrays) -> _Arrays:
        check_settings(cell, f"fastrnns' {name}", settings)
        check_one_mean(cell, f"fastrnns' {name}")
        return arrays

    return _load(layers, parts, LNLSTMCell, name, checked, normalized=False)


def _lstm(cell: Any, arrays: _Arrays) -> _Arrays:
    if "bias" in arrays:
        arrays["bias"] = arrays["bias"] + arrays.pop("recurrent_bias")
    return arrays


def _gru(cell: Any, arrays: _Arrays) -> _Arrays:
    shapes = cell.weight_shapes(arrays["kernel"].shape[0])
    for name, array in arrays.items():
        # Any size: `check_fit` refuses arrays that do not fit.
        r, z, n = np.array_split(array, 3, axis=-1)
        arrays[name] = np.concatenate([-z, r, n], axis=-1)
    # A beta takes over a bias that the cell does not have.
    for bias, beta in _BIASES.items():
        if bias in arrays and bias not in shapes and beta in shapes:
            arrays[beta] = arrays.pop(bias)
    return arrays


def _load(
    layers: Any,
    parts: dict[str, _Arrays],
    cell_class: type[BaseCell],
    name: str,
    arranged: Callable[[Any, _Arrays], _Arrays],
    normalized: bool = True,
) -> Any:
    """Loads each layer's and direction's arrays as `arranged` gives them."""
    given = layers if isinstance(layers, Sequence) else [layers]
    ours: list[Any] = []
    for layer in given:
        two = isinstance(layer, keras.layers.Bidirectional)
        ours += [layer.forward_layer, layer.backward_layer] if two else [layer]
    if len(ours) != len(parts):
        raise ValueError(
            f"Argument `layers` must have a layer for each of {name}'s "
            f"{', '.join(filter(None, parts)) or 'one layer'}. Received: "
            f"{len(ours)}; a Bidirectional counts as two."
        )
    found = []
    for layer, arrays in zip(ours, parts.values(), strict=True):
        cell = cell_of(layer, cell_class)
        found.append((layer, cell, arranged(cell, arrays)))
    if len({id(layer) for layer in ours}) < len(ours):
        raise ValueError(
            "Argument `layers` must be different layers. Received: the same "
            "layer several times; make each with its own call."
        )
    for each in found:
        check_fit(*each, normalized=normalized)
    for each in found:
        load(*each, normalized=normalized)
    # Otherwise Keras would build them when they are called.
    for layer in given:
        if isinstance(layer, keras.layers.Bidirectional):
            layer.built = True
    return layers


def _parts(weights: Any, name: str) -> dict[str, _Arrays]:
    """The arrays of every layer and direction, in torch's order.

    By keras_ln's names: kernels (D, nU) and (U, nU), and the two biases (nU).
    """
    known = {"weight_ih": "kernel", "weight_hh": "recurrent_kernel"}
    known |= {"bias_ih": "bias", "bias_hh": "recurrent_bias"}
    weights = state_dict(weights)
    names = list(weights) if isinstance(weights, Mapping) else []
    matches = {given: _NAME.fullmatch(str(given)) for given in names}
    # torch's names, by layer and by keras_ln's name.
    theirs: dict[str, dict[str, Any]] = {}
    for given, match in matches.items():
        if match is not None:
            kind, side, part = match.groups()
            theirs.setdefault(part, {})[known[f"{kind}_{side}"]] = given
    wrong = [str(given) for given, match in matches.items() if match is None]
    whole = [{"kernel", "recurrent_kernel"}, {*known.values()}]
    if wrong or not theirs or any(set(p) not in whole for p in theirs.values()):
        hint = ""
        if any(given.startswith("weight_hr") for given in wrong):
            hint = " An LSTM with `proj_size` has no counterpart here."
        hint += _hint_of_weight_norm(wrong)
        raise ValueError(
            f"Argument `weights` must be a torch.nn.{name} or its "
            "state_dict(), with weight_ih_l0, weight_hh_l0, bias_ih_l0, "
            "bias_hh_l0 and so on. Received: "
            f"{', '.join(map(str, names)) or type(weights)}."
            f"{hint}"
        )
    arrays = {given: as_floats(given, weights[given]) for given in names}
    for own in theirs.values():
        shapes = {given: arrays[given].shape for given in own.values()}
        # The two biases are added later.
        rows = {shape[:1] for shape in shapes.values()}
        if len(rows) > 1 or () in rows:
            raise ValueError(
                "Argument `weights` must hold weights and biases with equal "
                f"numbers of rows. Received: {list_shapes(shapes)}."
            )
    order = sorted(theirs, key=lambda part: (_numbers(part), part))
    return {
        part: {name: arrays[given].T for name, given in theirs[part].items()}
        for part in order
    }


def _hint_of_weight_norm(names: Any) -> str:
    names = map(str, names if isinstance(names, Iterable) else ())
    if not any(re.search(r"parametrizations\.|_[gv]$", n) for n in names):
        return ""
    return (
        " Of a weight-normalised module first call torch.nn.utils.parametrize."
        "remove_parametrizations(module, name) with each weight's name, or "
        "torch.nn.utils.remove_weight_norm if it has names that end in _g."
    )


def _fastrnns_parts(weights: Any) -> dict[str, _Arrays]:
    """The arrays of every cell by keras_ln's names, in order."""
    weights = state_dict(weights)
    # fastrnns' names, by cell and by keras_ln's name.
    parts: dict[str, dict[str, Any]] = {}
    for given in weights if isinstance(weights, Mapping) else ():
        for theirs, ours in _FASTRNNS.items():
            if f".{given}".endswith(f".{theirs}"):
                cell = str(given).removesuffix(theirs).rstrip(".")
                parts.setdefault(cell, {})[ours] = given
    count = sum(len(part) for part in parts.values())
    if not 0 < count == len(parts) * len(_FASTRNNS) == len(weights):
        raise ValueError(
            "Argument `weights` must be a LayerNormLSTM of fastrnns or its "
            f"state_dict(), with {', '.join(_FASTRNNS)} for every cell. "
            "Received: "
            f"{', '.join(map(str, weights)) if parts else type(weights)}."
            f"{_hint_of_weight_norm(weights)}"
        )
    return {
        cell: {
            name: as_floats(given, weights[given]).T
            for name, given in parts[cell].items()
        }
        for cell in sorted(parts, key=_numbers)
    }


def _numbers(name: str) -> list[int]:
    return list(map(int, re.findall(r"\d+", name)))
