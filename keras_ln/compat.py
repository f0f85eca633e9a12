"""Weights of other libraries' layer-normalised cells, loaded into ours.

The other library need not be installed: its weights come as arrays. The
`*_arguments` functions turn its settings into ours, so that the loaded layer
computes what the other one did; `load_*` functions set the weights.

| other layer                              | ours                           |
|------------------------------------------|--------------------------------|
| TensorFlow-Addons LayerNormLSTMCell      | LNLSTM with                    |
|                                          | `carry_normalized_state=True`, |
|                                          | `epsilon=1e-3`                 |
| TensorFlow-Addons LayerNormSimpleRNNCell | LNSimpleRNN                    |
| haste LayerNormLSTM                      | LNLSTM with `center=False`     |

Letters: D input features, U units.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_ln.layers.other_arguments import TFA_NAMES
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNNCell

# The order of `get_weights()` in TensorFlow-Addons.
_TFA_LSTM = (
    "kernel",
    "recurrent_kernel",
    "bias",
    "kernel_gamma",
    "kernel_beta",
    "recurrent_gamma",
    "recurrent_beta",
    "state_gamma",
    "state_beta",
)
# Their bias stands behind the norm: it is our beta.
_TFA_SIMPLE_RNN = ("kernel", "recurrent_kernel", "beta", "gamma")
# What the cells of Keras 2 have in their configs and ours do without.
_KERAS_2 = ("implementation",)
_HASTE_LSTM = {
    "kernel": "kernel",
    "recurrent_kernel": "recurrent_kernel",
    "bias": "bias",
    "gamma_h": "state_gamma",
    "beta_h": "state_beta",
}


def tfa_lstm_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `LNLSTM(Cell)` for a cell of TensorFlow-Addons.

    Among them are `carry_normalized_state=True`, as that cell hands the
    normalised c to the next step, and its `norm_epsilon` as `epsilon`.

    Args:
        config: `get_config()` of its LayerNormLSTMCell.

    Returns:
        Keyword arguments of `keras_ln.LNLSTM` and `keras_ln.LNLSTMCell`.

    >>> from keras_ln import compat
    >>> config = {"units": 4, "norm_epsilon": 0.001, "implementation": 2}
    >>> compat.tfa_lstm_arguments(config)
    {'units': 4, 'epsilon': 0.001, 'carry_normalized_state': True}
    """
    return {**_tfa_arguments(config), "carry_normalized_state": True}


def tfa_simple_rnn_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `LNSimpleRNN(Cell)` for a cell of TensorFlow-Addons.

    That cell adds its bias behind the norm, where ours has beta. So what it
    says of its bias holds for our beta, and ours has no bias.

    Args:
        config: `get_config()` of its LayerNormSimpleRNNCell.

    Returns:
        Keyword arguments of `keras_ln.LNSimpleRNN` and
        `keras_ln.LNSimpleRNNCell`.

    >>> from keras_ln import compat
    >>> compat.tfa_simple_rnn_arguments(
    ...     {"units": 4, "use_bias": True, "layernorm_epsilon": 1e-05}
    ... )
    {'units': 4, 'epsilon': 1e-05}
    """
    arguments = _tfa_arguments(config)
    arguments.pop("use_bias", None)
    for kind in ("initializer", "regularizer", "constraint"):
        if f"bias_{kind}" in arguments:
            arguments[f"beta_{kind}"] = arguments.pop(f"bias_{kind}")
    return arguments


def load_tfa_lstm(layer: Any, weights: Sequence[Any]) -> Any:
    """Loads the weights of TensorFlow-Addons' LayerNormLSTMCell.

    Gates stand in the same order there. The layer computes the same as that
    cell if it was made with `tfa_lstm_arguments`.

    Args:
        layer: an `LNLSTM` or `LNLSTMCell` with `carry_normalized_state=True`
            and all sites; it is built if it is not yet.
        weights: the cell's `get_weights()`: kernel (D, 4U), recurrent_kernel
            (U, 4U), bias (4U) unless `use_bias=False`; gamma and beta (4U) of
            kernel_norm and of recurrent_norm; those (U) of state_norm.

    Returns:
        The layer.

    Raises:
        ValueError: if the layer's settings or weights are others, with the
            arguments that would do; for a stateful layer that is not built.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> shapes = [(3, 16), (4, 16), 16, 16, 16, 16, 16, 4, 4]
    >>> weights = [np.ones(shape) for shape in shapes]
    >>> layer = keras_ln.LNLSTM(4, carry_normalized_state=True, epsilon=1e-3)
    >>> tuple(compat.load_tfa_lstm(layer, weights)(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    cell = _cell(layer, LNLSTMCell)
    if not cell.carry_normalized_state:
        raise ValueError(
            "LayerNormLSTMCell of TensorFlow-Addons hands the normalised c to "
            "the next step. Make the layer with carry_normalized_state=True, "
            "and with its norm_epsilon (1e-3 unless you chose another) as "
            "`epsilon`: see keras_ln.compat.tfa_lstm_arguments. Received: "
            "carry_normalized_state=False."
        )
    names = [name for name in _TFA_LSTM if len(weights) == 9 or name != "bias"]
    return _load(layer, cell, _named("LayerNormLSTMCell", names, weights))


def load_tfa_simple_rnn(layer: Any, weights: Sequence[Any]) -> Any:
    """Loads the weights of TensorFlow-Addons' LayerNormSimpleRNNCell.

    Its bias, which stands behind the norm, becomes our beta.

    Args:
        layer: an `LNSimpleRNN` or `LNSimpleRNNCell` without bias; it is built
            if it is not yet.
        weights: the cell's `get_weights()`: kernel (D, U), recurrent_kernel
            (U, U), bias (U) unless `use_bias=False`, and gamma (U) of
            layernorm. Without a bias our beta becomes 0, and can be trained.

    Returns:
        The layer.

    Raises:
        ValueError: if the layer's weights are others, and for a stateful layer
            that is not built.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = [np.ones(shape) for shape in [(3, 4), (4, 4), 4, 4]]
    >>> layer = compat.load_tfa_simple_rnn(keras_ln.LNSimpleRNN(4), weights)
    >>> tuple(layer(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    cell = _cell(layer, LNSimpleRNNCell)
    names = [
        name for name in _TFA_SIMPLE_RNN if len(weights) == 4 or name != "beta"
    ]
    arrays = _named("LayerNormSimpleRNNCell", names, weights)
    arrays.setdefault("beta", np.zeros_like(arrays["gamma"]))
    return _load(layer, cell, arrays)


def load_haste_lstm(layer: Any, weights: Any) -> Any:
    """Loads the weights of haste's LayerNormLSTM.

    Its gates stand in the order i, c, f, o, and are put into ours. Its norms
    of the products have no beta, and its epsilon is 1e-5.

    Args:
        layer: an `LNLSTM` or `LNLSTMCell` with `center=False`, all sites and
            epsilon 1e-5; it is built if it is not yet.
        weights: the LayerNormLSTM, or its `state_dict()`: kernel (D, 4U),
            recurrent_kernel (U, 4U), bias (4U), gamma (2, 4U), gamma_h and
            beta_h (U), as arrays or as tensors of torch.

    Returns:
        The layer.

    Raises:
        ValueError: if the layer's settings or weights are others, with the
            arguments that would do; for a stateful layer that is not built;
            for a LayerNormLSTM with zoneout, which is in force at inference
            too. A `state_dict()` does not tell.

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
    cell = _cell(layer, LNLSTMCell)
    if getattr(weights, "zoneout", 0.0):
        raise ValueError(
            f"{type(cell).__name__} has no zoneout, which haste's layer "
            f"applies at inference too. Received: zoneout={weights.zoneout}."
        )
    if cell.carry_normalized_state or cell.epsilon != 1e-5:
        raise ValueError(
            "haste's LayerNormLSTM carries c as it is, with an epsilon of "
            "1e-5. Make the layer with LNLSTM(units, center=False). Received: "
            f"carry_normalized_state={cell.carry_normalized_state}, "
            f"epsilon={cell.epsilon}."
        )
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    expected = {*_HASTE_LSTM, "gamma"}
    if not isinstance(weights, Mapping) or set(weights) != expected:
        raise ValueError(
            "Argument `weights` must be a LayerNormLSTM of haste or its "
            f"state_dict() with {', '.join(sorted(expected))}. Received: "
            f"{_names_in(weights)}."
        )
    arrays = {ours: _array(weights[name]) for name, ours in _HASTE_LSTM.items()}
    gamma = _array(weights["gamma"])
    _check_matrices(arrays)
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
            f"{_shapes(received)}."
        )
    arrays["kernel_gamma"], arrays["recurrent_gamma"] = gamma
    for name, array in arrays.items():
        if not name.startswith("state"):
            i, candidate, f, o = np.split(array, 4, axis=-1)
            arrays[name] = np.concatenate([i, f, candidate, o], axis=-1)
    return _load(layer, cell, arrays)


def _tfa_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {
        TFA_NAMES.get(name, name): value
        for name, value in config.items()
        if name not in _KERAS_2
    }
    # So Keras 2 writes the policies of mixed precision.
    if isinstance(dtype := arguments.get("dtype"), Mapping):
        arguments["dtype"] = dtype["config"]["name"]
    return arguments


def _cell(layer: Any, cell_class: type[BaseCell]) -> Any:
    """The cell of a sequence layer, or the cell itself."""
    cell = layer.cell if isinstance(layer, BaseRNN) else layer
    if not isinstance(cell, cell_class):
        name = cell_class.__name__
        raise ValueError(
            f"Argument `layer` must be a keras_ln {name.removesuffix('Cell')} "
            f"or {name}. Received: {type(layer).__name__}."
        )
    return cell


def _named(
    owner: str, names: Sequence[str], weights: Sequence[Any]
) -> dict[str, np.ndarray]:
    """The weights of a cell of TensorFlow-Addons by our names."""
    if len(weights) != len(names):
        raise ValueError(
            f"Argument `weights` must be what get_weights() of {owner} gives, "
            f"{len(names)} arrays or one more or less for the bias. Received: "
            f"{len(weights)}."
        )
    return dict(zip(names, map(_array, weights), strict=True))


def _load(layer: Any, cell: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Builds the layer where it is not, and sets its weights."""
    _check_matrices(arrays)
    kernel = cell.kernel if cell.built else arrays["kernel"]
    # Known before there are weights: a layer that does not fit stays as it is.
    shapes = cell.weight_shapes(kernel.shape[0])
    received = {name: array.shape for name, array in arrays.items()}
    if shapes != received:
        raise ValueError(
            f"{layer.name} must have the weights that are loaded. Expected: "
            f"{_shapes(received)}. Received: a layer with {_shapes(shapes)}. "
            "Its arguments `units`, `normalize`, `center` and `use_bias` "
            "decide, and the features that it was built for."
        )
    if not layer.built:
        if getattr(layer, "stateful", False):
            raise ValueError(
                f"{layer.name} is stateful, so it must be built for its batch "
                "size before it gets weights. Received: a layer that is not "
                f"built. Call {layer.name}.build((batch, None, "
                f"{kernel.shape[0]})) first."
            )
        steps = () if layer is cell else (None,)
        layer.build((None, *steps, kernel.shape[0]))
    for name, array in arrays.items():
        getattr(cell, name).assign(array)
    return layer


def _check_matrices(arrays: dict[str, np.ndarray]) -> None:
    for name in ("kernel", "recurrent_kernel"):
        if arrays[name].ndim != 2:
            raise ValueError(
                f"Argument `weights` must hold a matrix as {name}. Received: "
                f"shape {arrays[name].shape}."
            )


def _array(weight: Any) -> np.ndarray:
    # A tensor of torch, perhaps on a GPU.
    if hasattr(weight, "detach"):
        weight = weight.detach().cpu()
    return np.asarray(weight)


def _names_in(weights: Any) -> str:
    if isinstance(weights, Mapping):
        return ", ".join(sorted(map(str, weights)))
    return type(weights).__name__


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(
        f"{name} {shape}" for name, shape in sorted(shapes.items())
    )
