"""The weight-normalised LSTM: a plain LSTM with the kernels `g * v / ||v||`.

Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2.
Letters: D input features, U units.
"""

from typing import Any

import keras

from keras_ln.ops.ln_lstm import project, step
from keras_ln.ops.weight_normalization import normalized_kernel

__all__ = ["effective_weights", "project", "step"]


def effective_weights(weights: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The weights of the plain LSTM that `project` and `step` take.

    Args:
        weights: kernel (D, 4U), kernel_g (4U), recurrent_kernel (U, 4U),
            recurrent_g (4U) and, where there is one, bias (4U). The kernels
            hold v, a column each.
        dtype: of the kernels that come out. The norms are taken in at least
            float32.

    Returns:
        kernel, recurrent_kernel and, where there is one, bias.
    """
    kernel = normalized_kernel(weights["kernel"], weights["kernel_g"])
    recurrent = normalized_kernel(
        weights["recurrent_kernel"], weights["recurrent_g"]
    )
    effective = {
        "kernel": keras.ops.cast(kernel, dtype),
        "recurrent_kernel": keras.ops.cast(recurrent, dtype),
    }
    if "bias" in weights:
        effective["bias"] = weights["bias"]
    return effective
