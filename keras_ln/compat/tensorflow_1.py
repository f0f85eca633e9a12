"""tf.contrib.rnn.LayerNormBasicLSTMCell of TensorFlow 1.

Source: https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/contrib/rnn/python/ops/rnn_cell.py.
Letters: D input features, U units.
"""

import numbers
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_ln.compat.loading import (
    as_floats,
    cell_of,
    check_settings,
    list_shapes,
    load,
    names_in,
)
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

# The scopes of its gates, in keras_ln's order: i, f, c, o.
_GATES = ("input", "forget", "transform", "output")


def load_tf1_lstm(layer: Any, weights: Any, forget_bias: float = 1.0) -> Any:
    """Loads a checkpoint of tf.contrib.rnn.LayerNormBasicLSTMCell.

    That cell multiplies [x, h] by one kernel, normalises each gate separately,
    and carries the normalised c. It has no bias except the constant
    `forget_bias`, which is added to the beta of f.

    Args:
        layer: an `LNLSTM` or `LNLSTMCell` with the arguments of the example;
            the function builds it if necessary.
        weights: by name, as `tf.train.load_checkpoint` gives them: `kernel`
            (D + U, 4U), and `gamma` and `beta` (U) in the scopes input,
            transform, forget, output and state. Outer scopes of a name are
            ignored.
        forget_bias: the argument of the TensorFlow cell; checkpoints do not
            contain it.

    Returns:
        The layer.

    Raises:
        ValueError: if the layer's settings or the weights do not fit.

    Source: tf.contrib.rnn of TensorFlow 1.15.

    >>> import numpy as np
    >>> import keras_ln
    >>> from keras_ln import compat
    >>> scopes = ("input", "transform", "forget", "output", "state")
    >>> weights = {f"{s}/{k}": np.ones(4) for s in scopes
    ...            for k in ("gamma", "beta")}
    >>> layer = keras_ln.LNLSTM(
    ...     4, normalize=("sum", "state"), groups="gate", use_bias=False,
    ...     carry_normalized_state=True, epsilon=1e-12,
    ... )
    >>> weights["kernel"] = np.ones((7, 16))
    >>> tuple(compat.load_tf1_lstm(layer, weights)(np.ones((2, 5, 3))).shape)
    (2, 4)
    """
    cell = cell_of(layer, LNLSTMCell)
    settings = {
        "normalize": ("state", "sum"),
        "groups": "gate",
        "use_bias": False,
        "center": True,
        "carry_normalized_state": True,
        "epsilon": 1e-12,
    }
    check_settings(cell, "LayerNormBasicLSTMCell", settings)
    # NaN fails the comparison.
    if not isinstance(forget_bias, numbers.Real) or not (
        abs(forget_bias) <= sys.float_info.max
    ):
        raise ValueError(
            "Argument `forget_bias` must be a finite number. Received: "
            f"forget_bias={forget_bias!r}"
        )
    given = _by_last_parts(weights)
    names = {f"{s}/{k}" for s in (*_GATES, "state") for k in ("gamma", "beta")}
    if set(given) != names | {"kernel"} or len(given) != len(weights):
        raise ValueError(
            "Argument `weights` must hold kernel, and gamma and beta of the "
            "scopes input, transform, forget, output and state, of one cell. "
            f"Received: {names_in(weights)}."
        )
    arrays = {
        name: np.array(as_floats(name, weight))
        for name, weight in given.items()
    }
    units = arrays["state/gamma"].size
    shapes = {name: array.shape for name, array in arrays.items()}
    if arrays["kernel"].ndim != 2 or any(shapes[n] != (units,) for n in names):
        raise ValueError(
            "Argument `weights` must hold a matrix as kernel, and gammas and "
            f"betas of one size. Received: {list_shapes(shapes)}."
        )
    # Any size: `load` refuses arrays that do not fit.
    columns = np.array_split(arrays["kernel"], 4, axis=-1)
    kernel = np.concatenate([columns[k] for k in (0, 2, 1, 3)], axis=-1)
    sites = {
        f"sum_{kind}": np.concatenate([arrays[f"{g}/{kind}"] for g in _GATES])
        for kind in ("gamma", "beta")
    }
    sites["sum_beta"][units : 2 * units] += forget_bias
    sites |= {
        f"state_{kind}": arrays[f"state/{kind}"] for kind in ("gamma", "beta")
    }
    own = {"kernel": kernel[:-units], "recurrent_kernel": kernel[-units:]}
    return load(layer, cell, own | sites)


def _by_last_parts(weights: Any) -> dict[str, Any]:
    """The weights by `kernel`, or by the last two parts of their names."""
    found = {}
    for name, weight in weights.items() if isinstance(weights, Mapping) else ():
        parts = str(name).removesuffix(":0").split("/")
        last = parts[-1:] if parts[-1] == "kernel" else parts[-2:]
        found["/".join(last)] = weight
    return found
