"""The weight-normalised LSTM: a plain LSTM with the kernels `g * v / ||v||`.

Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2.
Letters: B batch, T time, D input features, U units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_ln.engine import arguments, dtypes
from keras_ln.ops.cells.lstm import LN_LSTM
from keras_ln.ops.norms.weight_normalization import normalized_kernel
from keras_ln.ops.public import (
    Options,
    check_sequences,
    of_call,
    over_time,
    sequence_op,
    step_op,
    tensors_of,
)

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Unpack

_GAINS = {"kernel": "kernel_g", "recurrent_kernel": "recurrent_g"}
_NAMES = ("kernel", "kernel_g", "recurrent_kernel", "recurrent_g")


@sequence_op
def wn_lstm(
    sequences: Any,
    initial_states: Any,
    weights: dict[str, Any],
    *,
    activation: Any = "tanh",
    recurrent_activation: Any = "sigmoid",
    cell_zoneout: Any = 0.0,
    **options: Unpack[Options],
) -> tuple[Any, Any, tuple[Any, Any]]:
    """Runs a weight-normalised LSTM over sequences, as one compiled op.

    With `N(v; g) = g * v / ||v||` and the Euclidean norm of each column of v,
    computed once per call:

        [i f c~ o] = h N(R; recurrent_g) + x N(W; kernel_g) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(c')

    Args:
        sequences: floating-point tensor (B, T, D).
        initial_states: h and c, tensors (B, U); None for zeros.
        weights: kernel (D, 4U), kernel_g (4U), recurrent_kernel (U, 4U),
            recurrent_g (4U) and, optionally, bias (4U). Columns are in the
            order i, f, c, o.
        {arguments}

    {returns}

    Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2.

    >>> import keras
    >>> ones = keras.ops.ones
    >>> weights = {
    ...     "kernel": ones((3, 16)),
    ...     "kernel_g": ones(16),
    ...     "recurrent_kernel": ones((4, 16)),
    ...     "recurrent_g": ones(16),
    ... }
    >>> last_output, outputs, (h, c) = wn_lstm(ones((2, 7, 3)), None, weights)
    >>> tuple(outputs.shape), tuple(c.shape)
    ((2, 7, 4), (2, 4))
    """
    return _run(**of_call(wn_lstm, locals()))


def _run(sequences, weights, **arguments):
    """`wn_lstm`, and one step of it, with the arguments of `over_time`."""
    _check_names(weights)
    sequences, weights = tensors_of(sequences, weights)
    check_sequences(sequences)
    _check_gains(weights)
    wide = dtypes.wide_dtype(sequences, *weights.values())
    weights = {name: keras.ops.cast(w, wide) for name, w in weights.items()}
    return over_time(
        LN_LSTM,
        sequences=sequences,
        weights=effective_weights(weights, sequences.dtype),
        owner="wn_lstm",
        **arguments,
    )[:3]


def _check_names(weights: dict[str, Any]) -> None:
    if missing := [name for name in _NAMES if name not in weights]:
        raise ValueError(
            f"Argument `weights` must hold {', '.join(_NAMES)}. Received: "
            f"weights without {', '.join(missing)}."
        )
    if unknown := set(weights) - {*_NAMES, "bias"}:
        raise ValueError(
            f"Argument `weights` may hold {', '.join(_NAMES)} and bias. "
            f"Received: {', '.join(sorted(map(str, unknown)))}."
        )


def _check_gains(weights: dict[str, Any]) -> None:
    for kernel, gain in _GAINS.items():
        arguments.check_weight(kernel, weights[kernel], ("inputs", "columns"))
        columns = weights[kernel].shape[1]
        arguments.check_weight(
            gain, weights[gain], (columns,), f" for a {kernel} of that width"
        )


def effective_weights(weights: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The weights of the plain LSTM that computes the same as `wn_lstm`.

    Its kernels are in `dtype`; the norms are taken in at least float32.
    """
    wide = dtypes.wide_dtype(*weights.values())
    effective = {
        kernel: keras.ops.cast(
            normalized_kernel(
                keras.ops.cast(weights[kernel], wide), weights[gain]
            ),
            dtype,
        )
        for kernel, gain in _GAINS.items()
    }
    if "bias" in weights:
        effective["bias"] = weights["bias"]
    return effective


wn_lstm_step = step_op(
    wn_lstm,
    _run,
    """{
...     "kernel": ones((3, 16)),
...     "kernel_g": ones(16),
...     "recurrent_kernel": ones((4, 16)),
...     "recurrent_g": ones(16),
... }""",
)
