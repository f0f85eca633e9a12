"""torch.nn.LSTM, torch.nn.GRU, and the LN-LSTM of torch's fastrnns.

Letters: D input features, U units, P `proj_size`.
"""

from typing import Any

from keras_ln.compat.layouts import Arrays, Layout, load
from keras_ln.layers.rnn.ln_gru import LNGRUCell
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell


def _gru(cell: Any, arrays: Arrays) -> Arrays:
    for array in arrays.values():
        array[..., : cell.units] *= -1.0
    # A beta takes over a bias that the cell does not have.
    shapes = cell.weight_shapes(1)
    for bias, site in (("bias", "kernel"), ("recurrent_bias", "recurrent")):
        beta = f"{site}_beta"
        if bias in arrays and bias not in shapes and beta in shapes:
            arrays[beta] = arrays.pop(bias)
    return arrays


_KERNELS = {
    "weight_ih": ("kernel", "G D"),
    "weight_hh": ("recurrent_kernel", "G P"),
}
_LSTM = Layout(
    "torch.nn.LSTM",
    LNLSTMCell,
    _KERNELS
    | {"bias_ih": ("bias", "G"), "bias_hh": ("bias", "G")}
    | {"weight_hr": ("projection_kernel", "P U")},
    key=r"{}_(l\d+(?:_reverse)?)",
    transposed=True,
    optional=("bias_ih bias_hh", "weight_hr"),
    kernels_only=True,
)
_GRU = Layout(
    "torch.nn.GRU",
    LNGRUCell,
    _KERNELS | {"bias_ih": ("bias", "G"), "bias_hh": ("recurrent_bias", "G")},
    key=_LSTM.key,
    # torch's are r, z, n.
    gates=(1, 0, 2),
    transposed=True,
    optional=("bias_ih bias_hh",),
    kernels_only=True,
    arrange=_gru,
)
_FASTRNNS = Layout(
    "fastrnns' LayerNormLSTM",
    LNLSTMCell,
    _KERNELS
    | {
        f"layernorm_{letter}.{theirs}": (f"{site}_{ours}", size)
        for letter, site, size in (
            ("i", "kernel", "G"),
            ("h", "recurrent", "G"),
            ("c", "state", "U"),
        )
        for theirs, ours in (("weight", "gamma"), ("bias", "beta"))
    },
    settings={
        "carry_normalized_state": True,
        "use_bias": False,
        "epsilon": 1e-5,
        "groups": "all",
    },
    key=r"(?:(.*)\.)?{}",
    transposed=True,
)


def load_torch_lstm(layers: Any, weights: Any) -> Any:
    """Loads the weights of torch.nn.LSTM, which has the same order of gates.

    Its `proj_size` is the layer's `projection`.

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
            biases do not match. All layers are then unchanged.

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
    return load(_LSTM, layers, weights)


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
    return load(_GRU, layers, weights)


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
    return load(_FASTRNNS, layers, weights)
