"""The layer-normalised cells of TensorFlow-Addons.

Letters: D input features, U units.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_ln.compat.layouts import Arrays, Layout, load
from keras_ln.layers.constructor_arguments import TFA_NAMES
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNNCell


def _with_beta(cell: Any, arrays: Arrays) -> Arrays:
    return {"beta": np.zeros_like(arrays["gamma"]), **arrays}


# A key has the weight's place in `get_weights()` too.
_KEY = r"{}() \(weights\[\d\]\)"
# In the order of `get_weights()` in TensorFlow-Addons.
_LSTM = Layout(
    "LayerNormLSTMCell of TensorFlow-Addons",
    LNLSTMCell,
    {
        "kernel": ("kernel", "D G"),
        "recurrent_kernel": ("recurrent_kernel", "U G"),
        "bias": ("bias", "G"),
        "kernel_gamma": ("kernel_gamma", "G"),
        "kernel_beta": ("kernel_beta", "G"),
        "recurrent_gamma": ("recurrent_gamma", "G"),
        "recurrent_beta": ("recurrent_beta", "G"),
        "state_gamma": ("state_gamma", "U"),
        "state_beta": ("state_beta", "U"),
    },
    settings={"carry_normalized_state": True, "groups": "all"},
    free=("epsilon", "activation", "recurrent_activation"),
    key=_KEY,
    optional=("bias",),
)
_SIMPLE_RNN = Layout(
    "LayerNormSimpleRNNCell of TensorFlow-Addons",
    LNSimpleRNNCell,
    {
        "kernel": ("kernel", "D U"),
        "recurrent_kernel": ("recurrent_kernel", "U U"),
        # Its bias is added after the normalisation.
        "beta": ("beta", "U"),
        "gamma": ("gamma", "U"),
    },
    free=("epsilon", "activation"),
    key=_KEY,
    optional=("beta",),
    arrange=_with_beta,
)


@keras.saving.register_keras_serializable(package="keras_ln")
def keras_2_hard_sigmoid(x: Any) -> Any:
    """The activation "hard_sigmoid" of Keras 2, clip(0.2 x + 0.5, 0, 1).

    Keras 3 has another function of this name, clip(x / 6 + 0.5, 0, 1).

    >>> import keras
    >>> from keras_ln import compat
    >>> x = keras.ops.convert_to_tensor([-3.0, 0.0, 1.25])
    >>> list(map(float, compat.keras_2_hard_sigmoid(x)))
    [0.0, 0.5, 0.75]
    """
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def tfa_lstm_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `LNLSTM(Cell)` for a cell of TensorFlow-Addons.

    They include `carry_normalized_state=True`, because that cell passes the
    normalised c to the next step, and its `norm_epsilon` as `epsilon`. Its
    "hard_sigmoid" becomes `keras_2_hard_sigmoid`.

    Args:
        config: `get_config()` of its LayerNormLSTMCell.

    Returns:
        Keyword arguments of `keras_ln.LNLSTM` and `keras_ln.LNLSTMCell`.

    Raises:
        TypeError: if the config is no mapping.

    >>> from keras_ln import compat
    >>> config = {"units": 4, "norm_epsilon": 0.001, "implementation": 2}
    >>> compat.tfa_lstm_arguments(config)
    {'units': 4, 'epsilon': 0.001, 'carry_normalized_state': True}
    """
    return {**_tfa_arguments(config), "carry_normalized_state": True}


def tfa_simple_rnn_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `LNSimpleRNN(Cell)` for a cell of TensorFlow-Addons.

    That cell adds its bias after the normalisation, as `LNSimpleRNN` adds beta.
    So the initializer, regularizer and constraint of its bias become arguments
    for beta, and the `LNSimpleRNN` has no bias. "hard_sigmoid" becomes
    `keras_2_hard_sigmoid`.

    Args:
        config: `get_config()` of its LayerNormSimpleRNNCell.

    Returns:
        Keyword arguments of `keras_ln.LNSimpleRNN` and
        `keras_ln.LNSimpleRNNCell`.

    Raises:
        TypeError: if the config is no mapping.

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

    The order of the gates is the same. A layer made with the arguments from
    `tfa_lstm_arguments` computes the same results as that cell.

    Args:
        layer: an `LNLSTM` or `LNLSTMCell` with `carry_normalized_state=True`
            and all sites; the function builds it if necessary.
        weights: the cell's `get_weights()`: kernel (D, 4U), recurrent_kernel
            (U, 4U), bias (4U) unless `use_bias=False`; gamma and beta (4U) of
            kernel_norm and of recurrent_norm; gamma and beta (U) of state_norm.

    Returns:
        The layer.

    Raises:
        ValueError: unless the layer's settings (the message has those that do)
            and the weights fit; for a stateful layer that is not built.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> shapes = [(3, 16), (4, 16), 16, 16, 16, 16, 16, 4, 4]
    >>> weights = [np.ones(shape) for shape in shapes]
    >>> layer = keras_ln.LNLSTM(4, carry_normalized_state=True, epsilon=1e-3)
    >>> tuple(compat.load_tfa_lstm(layer, weights)(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    return _load(_LSTM, layer, weights)


def load_tfa_simple_rnn(layer: Any, weights: Sequence[Any]) -> Any:
    """Loads the weights of TensorFlow-Addons' LayerNormSimpleRNNCell.

    Its bias, which it adds after the normalisation, becomes the layer's beta.

    Args:
        layer: an `LNSimpleRNN` or `LNSimpleRNNCell` without bias; the function
            builds it if necessary.
        weights: the cell's `get_weights()`: kernel (D, U), recurrent_kernel
            (U, U), bias (U) unless `use_bias=False`, and gamma (U) of
            layernorm. Without a bias the layer's beta becomes 0, and stays
            trainable.

    Returns:
        The layer.

    Raises:
        ValueError: unless the weights fit; for a stateful layer that is not
            built.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> weights = [np.ones(shape) for shape in [(3, 4), (4, 4), 4, 4]]
    >>> layer = compat.load_tfa_simple_rnn(keras_ln.LNSimpleRNN(4), weights)
    >>> tuple(layer(np.ones((2, 7, 3))).shape)
    (2, 4)
    """
    return _load(_SIMPLE_RNN, layer, weights)


def _tfa_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise TypeError(
            "Argument `config` must be a mapping: the get_config() of a cell "
            f"of TensorFlow-Addons. Received: {type(config).__name__}."
        )
    arguments = {
        TFA_NAMES.get(name, name): value
        for name, value in config.items()
        if name != "implementation"
    }
    for name in ("activation", "recurrent_activation"):
        if arguments.get(name) == "hard_sigmoid":
            arguments[name] = keras_2_hard_sigmoid
    # Keras 2 writes the policies of mixed precision as mappings.
    if isinstance(dtype := arguments.get("dtype"), Mapping):
        arguments["dtype"] = dtype["config"]["name"]
    return arguments


def _load(layout: Layout, layer: Any, weights: Any) -> Any:
    """Loads weights by their places; the optional one may be missing."""
    names = [*layout.weights]
    count = len(weights) if isinstance(weights, Sequence) else None
    if count not in (len(names), len(names) - 1):
        raise ValueError(
            f"Argument `weights` must be the get_weights() of {layout.owner}: "
            f"{len(names)} arrays, or {len(names) - 1} without a bias. "
            f"Received: {count or type(weights).__name__}."
        )
    if count < len(names):
        names.remove(*layout.optional)
    keys = [f"{name} (weights[{k}])" for k, name in enumerate(names)]
    return load(layout, layer, dict(zip(keys, weights, strict=True)))
