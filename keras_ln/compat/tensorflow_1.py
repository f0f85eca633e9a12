"""tf.contrib.rnn.LayerNormBasicLSTMCell of TensorFlow 1.

Source: https://github.com/tensorflow/tensorflow/blob/v1.15.0/tensorflow/contrib/rnn/python/ops/rnn_cell.py.
Letters: D input features, U units.
"""

import dataclasses
import numbers
import sys
from typing import Any

from keras_ln.compat.layouts import Arrays, Layout, joined, load
from keras_ln.engine import arguments
from keras_ln.layers.rnn.ln_lstm import LNLSTMCell

# The scopes of its gates, in keras_ln's order: i, f, c, o.
_GATES = ("input", "forget", "transform", "output")
_LSTM = Layout(
    "LayerNormBasicLSTMCell",
    LNLSTMCell,
    {"kernel": ("kernel", "D+U G")}
    | {
        f"{scope}/{name}": (f"{scope}_{name}", "U")
        for scope in (*_GATES, "state")
        for name in ("gamma", "beta")
    },
    settings={
        "normalize": ("state", "sum"),
        "groups": "gate",
        "use_bias": False,
        "center": True,
        "carry_normalized_state": True,
        "epsilon": 1e-12,
    },
    free=("activation",),
    key="(?:.*/)?{}(?::0)?()",
    # Its own are i, c, f, o.
    gates=(0, 2, 1, 3),
    holder="a checkpoint of {}",
)


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
    # NaN fails the comparison.
    if not isinstance(forget_bias, numbers.Real) or not (
        abs(forget_bias) <= sys.float_info.max
    ):
        raise arguments.wrong("forget_bias", "a finite number", forget_bias)

    def arrange(cell: Any, arrays: Arrays) -> Arrays:
        kernel = arrays.pop("kernel")
        arrays["kernel"] = kernel[: -cell.units]
        arrays["recurrent_kernel"] = kernel[-cell.units :]
        arrays["forget_beta"] += forget_bias
        return joined(arrays, _GATES)

    return load(dataclasses.replace(_LSTM, arrange=arrange), layer, weights)
