"""The layer-normalised simple RNN: cell and sequence layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.types import Identifier, Switch
from keras_ln.ops.cells.simple_rnn import LN_SIMPLE_RNN


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNSimpleRNNCell(BaseCell):
    """One step of the layer-normalised simple RNN.

        a  = x W + h R + bias
        h' = f(gamma * (a - mean(a)) / sqrt(var(a) + epsilon) + beta)

    The mean and the variance are taken over one example's U values of a.

    | weight             | shape  | initial value  |
    |--------------------|--------|----------------|
    | `kernel`           | (D, U) | glorot uniform |
    | `recurrent_kernel` | (U, U) | orthogonal     |
    | `bias`             | (U,)   | 0              |
    | `gamma`            | (U,)   | 1              |
    | `beta`             | (U,)   | 0              |

    `beta` is the paper's b; `bias` exists only with `use_bias`. In mixed
    precision the statistics and all sums are float32.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 4.

    >>> import keras
    >>> cell = LNSimpleRNNCell(4)
    >>> h, _ = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(h.shape)
    (2, 4)
    """

    equations = LN_SIMPLE_RNN

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        use_bias: bool = False,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        zoneout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNSimpleRNN(BaseRNN):
    """Layer-normalised simple RNN over a sequence.

    Every step along axis 1 of the input computes

        a  = x W + h R + bias
        h' = f(gamma * (a - mean(a)) / sqrt(var(a) + epsilon) + beta)

    with the statistics of each example. `LNSimpleRNNCell` lists the weights. At
    a masked step the state does not change, and the output is the carried h
    (the initial h before the first valid step).

    The arguments of `keras.layers.SimpleRNN` have the same names and positions.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 4.

    >>> import keras
    >>> layer = LNSimpleRNN(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = LNSimpleRNNCell
    cell_name = "ln_simple_rnn_cell"

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        use_bias: bool = False,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: int | None = None,
        epsilon: float = 1e-5,
        gamma_initializer: Identifier = "ones",
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        use_fused: Switch = "auto",
        zoneout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
