"""The weight-normalised LSTM: cell and sequence layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.rnn.base_lstm_cell import BaseLSTMCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.types import Identifier, Switch
from keras_ln.ops.cells.lstm import LN_LSTM
from keras_ln.ops.cells.wn_lstm import effective_weights


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class WNLSTMCell(BaseLSTMCell):
    """One step of the LSTM with weight-normalised kernels.

        [i f c~ o] = h N(R; recurrent_g) + x N(W; kernel_g) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(c')

    Here `N(v; g) = g * v / ||v||`, with the Euclidean norm of each column of v.
    The gains g start at the norms of the columns, so that an untrained layer
    equals `keras.layers.LSTM`. The gates are in the order i, f, c, o.

    | weight             | shape   | layout     | initial value            |
    |--------------------|---------|------------|--------------------------|
    | `kernel`           | (D, 4U) | i, f, c, o | glorot uniform           |
    | `kernel_g`         | (4U,)   | i, f, c, o | norms of `kernel`        |
    | `recurrent_kernel` | (U, 4U) | i, f, c, o | orthogonal               |
    | `recurrent_g`      | (4U,)   | i, f, c, o | of `recurrent_kernel`    |
    | `bias`             | (4U,)   | i, f, c, o | 0, but 1 for f           |

    A column of zeros stays zero. With `projection` there is a
    `projection_kernel` (U, P), glorot uniform and not normalised, and
    `recurrent_kernel` is (P, 4U). In mixed precision the norms, c and all sums
    are float32.

    Args:
        {arguments}

    {call}

    Source: Salimans and Kingma, "Weight Normalization" (2016).

    >>> import keras
    >>> cell = WNLSTMCell(4)
    >>> states = cell.get_initial_state(batch_size=2)
    >>> h, (h, c) = cell(keras.ops.ones((2, 3)), states)
    >>> tuple(h.shape), tuple(c.shape)
    ((2, 4), (2, 4))
    """

    # With kernels that are normalised already, see `tensors`.
    equations = LN_LSTM
    weight_names = (
        "kernel",
        "kernel_g",
        "recurrent_kernel",
        "recurrent_g",
        "bias",
        "projection_kernel",
    )
    # The kernels are normalised in their own precision, and then cast.
    matrix_autocast = False

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        projection: int | None = None,
        projection_initializer: Identifier = "glorot_uniform",
        projection_regularizer: Identifier = None,
        projection_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)

    def add_matrix(self, name: str, shape: tuple[int, int]) -> None:
        """Creates the directions v, and the gains g of their columns."""
        super().add_matrix(name, shape)
        if name == "projection_kernel":
            return
        gains = name.removesuffix("_kernel") + "_g"
        setattr(self, gains, self.add_gains(gains, getattr(self, name)))

    def tensors(self) -> dict[str, Any]:
        """The weights of the equivalent plain LSTM, by name."""
        tensors = super().tensors()
        effective = effective_weights(tensors, self.compute_dtype)
        if self.projection:
            effective["projection_kernel"] = keras.ops.cast(
                tensors["projection_kernel"], self.compute_dtype
            )
        return effective


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class WNLSTM(BaseRNN):
    """LSTM with weight-normalised kernels over a sequence.

    Every step along axis 1 of the input computes

        [i f c~ o] = h N(R; recurrent_g) + x N(W; kernel_g) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(c')

    with `N(v; g) = g * v / ||v||` for each column of v. The kernels are
    normalised once per call. `WNLSTMCell` lists the weights. At a masked step
    the states do not change, and the output is the carried h (the initial h
    before the first valid step).

    The arguments of `keras.layers.LSTM` have the same names and positions.

    Args:
        {arguments}

    {call}

    Source: Salimans and Kingma, "Weight Normalization" (2016).

    >>> import keras
    >>> layer = WNLSTM(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = WNLSTMCell
    cell_name = "wnlstm_cell"

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        use_cudnn: Switch = "auto",
        use_fused: Switch = "auto",
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        projection: int | None = None,
        projection_initializer: Identifier = "glorot_uniform",
        projection_regularizer: Identifier = None,
        projection_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
