"""The layer-normalised GRU: cell and sequence layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln.engine.spec import Vector
from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.rnn.forget_bias import LogUniformForgetBias
from keras_ln.layers.types import Identifier, Sites, Switch
from keras_ln.ops.cells.gru import LN_GRU

SITES = ("kernel", "recurrent")


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNGRUCell(BaseCell):
    """One step of the layer-normalised GRU.

        [z r] = LN(h R_zr) + LN(x W_zr)
        h^    = tanh(LN(x W_h) + sigmoid(r) * LN(h R_h))
        h'    = (1 - sigmoid(z)) * h + sigmoid(z) * h^

    Here `LN(z) = gamma * (z - mean(z)) / sqrt(var(z) + epsilon) + beta`, with
    one example's statistics over the 2U gates, and separately over the U
    candidates.

    With `normalize=("sum",)`, one normalisation of all 3U entries is
    `[z r a] = LN(x W + h R)` and `h^ = tanh(sigmoid(r) * a)`.

    Unlike in Keras, an update gate of 1 takes the candidate. With
    `normalize=()` the cell is `keras.layers.GRU` with 1 - z for z, which flips
    the signs of the first U columns of kernels and biases; with
    `use_bias=True` it also has the biases of Keras' default GRU. Columns are in
    the order z, r, h.

    | weight             | shape   | layout  | initial value  |
    |--------------------|---------|---------|----------------|
    | `kernel`           | (D, 3U) | z, r, h | glorot uniform |
    | `recurrent_kernel` | (U, 3U) | z, r, h | orthogonal     |
    | `bias`             | (3U,)   | z, r, h | 0              |
    | `recurrent_bias`   | (3U,)   | z, r, h | 0              |
    | `kernel_gamma`     | (3U,)   | z, r, h | 1              |
    | `kernel_beta`      | (3U,)   | z, r, h | 0              |
    | `recurrent_gamma`  | (3U,)   | z, r, h | 1              |
    | `recurrent_beta`   | (3U,)   | z, r, h | 0              |

    The first 2U entries of a gamma or beta belong to the gates. The biases
    exist only with `use_bias`: `bias` is added to LN(x W), and `recurrent_bias`
    to LN(h R), before the reset gate multiplies it. `recurrent_bias` exists
    only without `recurrent_beta`, which makes it redundant. It has the
    initializer, regularizer and constraint of `bias`, but starts at 0 if `bias`
    has a `LogUniformForgetBias`. Sites that are not normalised have no weights.
    In mixed precision the statistics and all sums are float32.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 26-28.

    >>> import keras
    >>> cell = LNGRUCell(4)
    >>> h, _ = cell(keras.ops.ones((2, 3)), cell.get_initial_state(2))
    >>> tuple(h.shape)
    (2, 4)
    """

    equations = LN_GRU
    sites = (*SITES, "sum")
    accumulators = ("h",)

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
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
        reset_after: bool = True,
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
        zoneout: float = 0.0,
        groups: str = "paper",
        use_sum_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
        start = self.bias_initializer
        if not isinstance(start, LogUniformForgetBias):
            return
        if not self.use_bias:
            raise ValueError(
                "LNGRU has no bias for a LogUniformForgetBias without "
                "use_bias=True. Received: use_bias=False"
            )
        if start.cell == "gru":
            raise ValueError(
                "LNGRU needs a LogUniformForgetBias with cell='lngru': an "
                "update gate of 1 takes the candidate. Received: cell='gru'"
            )

    def initial_value(self, name: str) -> Any:
        """The initializer of a vector."""
        if name == "recurrent_bias" and isinstance(
            self.bias_initializer, LogUniformForgetBias
        ):
            # The two biases of a gate are added, so one of them starts at 0.
            return keras.initializers.Zeros()
        return super().initial_value(name)

    def has(self, vector: Vector) -> bool:
        """Whether the cell has the vector; redundant vectors are left out."""
        if vector.name == "recurrent_bias":
            has_beta = self.center and "recurrent" in self.normalize
            return (
                self.use_bias and not has_beta and "sum" not in self.normalize
            )
        return super().has(vector)


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LNGRU(BaseRNN):
    """Layer-normalised GRU over a sequence.

    Every step along axis 1 of the input computes

        [z r] = LN(h R_zr) + LN(x W_zr)
        h^    = tanh(LN(x W_h) + sigmoid(r) * LN(h R_h))
        h'    = (1 - sigmoid(z)) * h + sigmoid(z) * h^

    with `LN(z) = gamma * (z - mean(z)) / sqrt(var(z) + epsilon) + beta` for
    each example. `LNGRUCell` lists the weights. At a masked step the state does
    not change, and the output is the carried h (the initial h before the first
    valid step).

    The arguments of `keras.layers.GRU` have the same names and positions.

    Args:
        {arguments}

    {call}

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 26-28.

    >>> import keras
    >>> layer = LNGRU(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = LNGRUCell
    cell_name = "lngru_cell"

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
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
        seed: int | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
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
        zoneout: float = 0.0,
        groups: str = "paper",
        use_sum_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
