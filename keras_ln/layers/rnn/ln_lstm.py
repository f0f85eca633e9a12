"""The layer-normalised LSTM: cell and sequence layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.rnn.base_lstm_cell import BaseLSTMCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.types import Identifier, Sites, Switch
from keras_ln.ops.cells.lstm import LN_LSTM, SITES
from keras_ln.ops.norms.cell_norms import EVERY_SITE


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNLSTMCell(BaseLSTMCell):
    """One step of the layer-normalised LSTM.

        [i f c~ o] = LN(h R; recurrent_gamma, recurrent_beta)
                   + LN(x W; kernel_gamma, kernel_beta) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(LN(c'; state_gamma, state_beta))

    Here `LN(z; g, b) = g * (z - mean(z)) / sqrt(var(z) + epsilon) + b`, with
    one example's statistics over the whole vector z (over all 4U gate
    pre-activations at once).

    The next step gets c', or LN(c') with `carry_normalized_state`. The gates
    are in the order i, f, c, o, as in `keras.layers.LSTM`; with `normalize=()`
    the cell computes exactly that LSTM.

    | weight             | shape   | layout     | initial value            |
    |--------------------|---------|------------|--------------------------|
    | `kernel`           | (D, 4U) | i, f, c, o | glorot uniform           |
    | `recurrent_kernel` | (U, 4U) | i, f, c, o | orthogonal               |
    | `bias`             | (4U,)   | i, f, c, o | 0, but 1 for f           |
    | `kernel_gamma`     | (4U,)   | i, f, c, o | 1                        |
    | `kernel_beta`      | (4U,)   | i, f, c, o | 0                        |
    | `recurrent_gamma`  | (4U,)   | i, f, c, o | 1                        |
    | `recurrent_beta`   | (4U,)   | i, f, c, o | 0                        |
    | `state_gamma`      | (U,)    |            | 1                        |
    | `state_beta`       | (U,)    |            | 0                        |

    Sites that are not normalised have no weights. With `projection` there is
    a `projection_kernel` (U, P), glorot uniform, after `recurrent_kernel`,
    which is (P, 4U). In mixed precision the statistics, c and all sums are
    float32.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 20-22.

    >>> import keras
    >>> cell = LNLSTMCell(4)
    >>> states = cell.get_initial_state(batch_size=2)
    >>> h, (h, c) = cell(keras.ops.ones((2, 3)), states)
    >>> tuple(h.shape), tuple(c.shape)
    ((2, 4), (2, 4))
    """

    equations = LN_LSTM
    weight_names = (*LN_LSTM.weights, "projection_kernel")
    sites = EVERY_SITE

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
        normalize: Sites = SITES,
        center: bool = True,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        carry_normalized_state: bool = False,
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        groups: str = "paper",
        use_sum_bias: bool = False,
        projection: int | None = None,
        projection_initializer: Identifier = "glorot_uniform",
        projection_regularizer: Identifier = None,
        projection_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
        if self.carry_normalized_state and "state" not in self.normalize:
            raise ValueError(
                'carry_normalized_state=True needs "state" in `normalize`: '
                "without it c is not normalised. Received: "
                f"normalize={self.normalize!r}"
            )


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNLSTM(BaseRNN):
    """Layer-normalised LSTM, a drop-in for `keras.layers.LSTM`.

    Every step along axis 1 of the input computes

        [i f c~ o] = LN(h R; recurrent_gamma, recurrent_beta)
                   + LN(x W; kernel_gamma, kernel_beta) + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(LN(c'; state_gamma, state_beta))

    with `LN(z; g, b) = g * (z - mean(z)) / sqrt(var(z) + epsilon) + b` for each
    example. `LNLSTMCell` lists the weights. At a masked step the states do not
    change, and the output is the carried h (the initial h before the first
    valid step).

    The arguments of `keras.layers.LSTM` have the same names and positions.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 20-22.

    >>> import keras
    >>> layer = LNLSTM(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = LNLSTMCell
    cell_name = "lnlstm_cell"

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
        normalize: Sites = SITES,
        center: bool = True,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        use_fused: Switch = "auto",
        carry_normalized_state: bool = False,
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        groups: str = "paper",
        use_sum_bias: bool = False,
        projection: int | None = None,
        projection_initializer: Identifier = "glorot_uniform",
        projection_regularizer: Identifier = None,
        projection_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
