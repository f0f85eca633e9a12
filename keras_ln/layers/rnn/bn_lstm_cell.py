"""The LSTM with batch statistics of each time step: the cell."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln._keras import placed
from keras_ln.engine import arguments
from keras_ln.engine.scan import step
from keras_ln.engine.zoneout import COUNTS_TO, counted
from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.normalization.recurrent_batch_norm import (
    SMALL_GAIN,
    known_steps,
)
from keras_ln.layers.rnn.base_lstm_cell import BaseLSTMCell
from keras_ln.layers.types import Identifier, Shape, Sites
from keras_ln.ops.cells.bn_lstm import (
    BN_LSTM,
    MOVING,
    split_moving,
    statistics_at,
)
from keras_ln.ops.cells.lstm import SITES


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class BNLSTMCell(BaseLSTMCell):
    """One step, at inference, of the LSTM with batch normalization.

        [i f c~ o] = BN_t(h R; recurrent_gamma) + BN_t(x W; kernel_gamma)
                   + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(BN_t(c'; state_gamma, state_beta))

    Here `BN_t(z; g, b) = g * (z - mean_t) / sqrt(var_t + epsilon) + b`, with
    the batch statistics of step t; gamma and beta are shared over time. The
    gates are in the order i, f, c, o. S is `max_steps`.

    | weight                       | shape   | initial value            |
    |------------------------------|---------|--------------------------|
    | `kernel`                     | (D, 4U) | glorot uniform           |
    | `recurrent_kernel`           | (U, 4U) | orthogonal               |
    | `bias`                       | (4U,)   | 0, but 1 for f           |
    | `kernel_gamma`               | (4U,)   | 0.1                      |
    | `recurrent_gamma`            | (4U,)   | 0.1                      |
    | `state_gamma`                | (U,)    | 0.1                      |
    | `state_beta`                 | (U,)    | 0                        |
    | `kernel_moving_mean`         | (S, 4U) | 0, not trained           |
    | `kernel_moving_variance`     | (S, 4U) | 1, not trained           |
    | `recurrent_moving_mean`      | (S, 4U) | 0, not trained           |
    | `recurrent_moving_variance`  | (S, 4U) | 1, not trained           |
    | `state_moving_mean`          | (S, U)  | 0, not trained           |
    | `state_moving_variance`      | (S, U)  | 1, not trained           |

    Sites that are not normalised have no weights. In mixed precision the
    statistics, c and all sums are float32. A cell without its layer, as in
    `keras.layers.RNN`, sees no mask: it counts only a row's valid steps, while
    `BNLSTM` counts all steps.

    Args:
        {arguments}

    Call arguments:
        inputs: tensor (B, D); integers are cast to floating point.
        states: `[h, c, k]`, tensors (B, U), (B, U) and (B, 1); k counts the
            steps that a row has done, and selects the moving statistics.
        training: must be false, unless the cell is frozen or normalises
            nothing. Train with `BNLSTM`.

    Returns:
        h' (B, U) and `[h', c', k + 1]`, in the layer's compute dtype.

    Raises:
        ValueError: if an argument is wrong (the message names it); when built,
            if the rank of the inputs is not 2 or their size is unknown; when
            called, if the inputs are complex, h or c is not floating point, or
            the number or shape of the states is wrong.

    Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).

    >>> import keras
    >>> cell = BNLSTMCell(4, max_steps=7)
    >>> states = cell.get_initial_state(batch_size=2)
    >>> h, (h, c, k) = cell(keras.ops.ones((2, 3)), states)
    >>> tuple(h.shape), tuple(c.shape), tuple(k.shape)
    ((2, 4), (2, 4), (2, 1))
    """

    equations = BN_LSTM
    sites = SITES
    counters = 1
    weight_names = (
        "kernel",
        "recurrent_kernel",
        *(vector.name for vector in BN_LSTM.vectors),
        *(name for of_site in MOVING.values() for name in of_site),
    )

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
        *,
        max_steps: int | None = None,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        normalize: Sites = SITES,
        gamma_initializer: Identifier = SMALL_GAIN,
        beta_initializer: Identifier = "zeros",
        gamma_regularizer: Identifier = None,
        beta_regularizer: Identifier = None,
        gamma_constraint: Identifier = None,
        beta_constraint: Identifier = None,
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
        # max_steps, or the number of steps with which the layer is built.
        self.steps = self.max_steps

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (B, D)."""
        arguments.check_rank("inputs", input_shape, "batch, features")
        if self.normalize:
            known_steps(self.steps)
        super().build(input_shape)
        for site in self.normalize:
            width = getattr(self, f"{site}_gamma").shape[0]
            self.add_moving_statistics(MOVING[site], (self.steps, width))

    def call(
        self, inputs: Any, states: Any, training: bool | None = False
    ) -> tuple[Any, Any]:
        """One step: inputs (B, D), states h, c (B, U), k (B, 1)."""
        if training and self.trainable and self.normalize:
            raise ValueError(
                "BNLSTMCell cannot be trained without its layer or inside "
                "keras.layers.RNN, whose loop cannot keep the statistics of "
                "each step. Use keras_ln.BNLSTM, or call with training=False."
            )
        inputs = self.check_call(inputs, states)
        h, c, counter = map(placed, states)
        self._check_counter(counter)
        input_mask, recurrent_mask = self.dropout_masks(inputs, h, training)
        if input_mask is not None:
            inputs = inputs * input_mask
        weights, moving = split_moving(self.tensors())
        new = step(
            self.equations,
            self.project(inputs, weights),
            (h, c),
            weights,
            recurrent_mask=recurrent_mask,
            moving=statistics_at(moving, counter),
            **self.settings(),
        )
        h, c = self.apply_zoneout(new, (h, c), counter, training)
        # The statistics of the last step also serve all later steps.
        last = self.steps - 1 if self.normalize else 0
        return h, [h, c, counted(counter, again=last)]

    def _check_counter(self, counter):
        dtype = keras.backend.standardize_dtype(counter.dtype)
        limit = COUNTS_TO.get(dtype)
        if limit is not None and self.normalize and self.steps > limit:
            raise ValueError(
                f"BNLSTMCell without its layer counts steps in its compute "
                f"dtype, and {dtype} counts to {limit}. Received: "
                f"max_steps={self.steps}. Use keras_ln.BNLSTM, which has its "
                f"own counter, a smaller max_steps, or dtype float32."
            )
