"""The LSTM with batch statistics of each time step: the sequence layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln import engine
from keras_ln._keras import mask_of
from keras_ln.engine import arguments
from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.normalization.batch_normalization import warn_of_one
from keras_ln.layers.normalization.recurrent_batch_norm import SMALL_GAIN
from keras_ln.layers.rnn.base_rnn import BaseRNN
from keras_ln.layers.rnn.bn_lstm_cell import BNLSTMCell
from keras_ln.layers.types import Identifier, Shape, Sites, Switch
from keras_ln.ops.cells.bn_lstm import (
    check_first_step,
    moved_statistics,
    split_moving,
    statistics_in,
    statistics_of,
)
from keras_ln.ops.cells.lstm import SITES
from keras_ln.ops.norms.batch_normalization import within


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class BNLSTM(BaseRNN):
    """LSTM with batch statistics of each time step.

    Every step along axis 1 of the input computes

        [i f c~ o] = BN_t(h R; recurrent_gamma) + BN_t(x W; kernel_gamma)
                   + bias
        c' = sigmoid(f) * c + sigmoid(i) * tanh(c~)
        h' = sigmoid(o) * tanh(BN_t(c'; state_gamma, state_beta))

    with `BN_t(z; g, b) = g * (z - mean_t) / sqrt(var_t + epsilon) + b`.
    `BNLSTMCell` lists the weights.

    Training normalises with the batch statistics of each step and updates the
    moving statistics with them. Inference normalises with the moving
    statistics, and beyond `max_steps` with the last step's. Steps are counted
    in the order of processing, starting at `first_step`. A `stateful` layer
    counts on from call to call: the last of its `states` is the count, an
    int32 scalar, which `reset_state` sets to zero. Steps beyond `max_steps`,
    steps that are masked in every row, and statistics that are not finite do
    not update the moving statistics.

    At a masked step a row does not count in the statistics, its states do not
    change, and its output is the carried h (the initial h before the first
    valid step). A frozen layer (`trainable=False`) runs as at inference.

    The arguments of `keras.layers.LSTM` have the same names and positions.

    Args:
        {arguments}

    Call arguments:
        {inputs}
        training: use the batch statistics, record them, and turn dropout and
            zoneout's random choices on.
        reset: must be None, because steps are counted from the start of a
            row.
        reset_state: must be None.
        first_step: the number of the sequences' steps before this call: an
            int >= 0, or an integer tensor () (negative values count as 0).
            The first step uses the statistics of this index. None means 0, or
            the layer's own count if it is `stateful` and gets no
            `initial_state`. With `first_step` the layer uses the mask that the
            sequences carry, which Keras drops if a call has several tensors.

    {returns}

    Source: Cooijmans et al., "Recurrent Batch Normalization" (2016).

    >>> import keras
    >>> layer = BNLSTM(4, return_sequences=True)
    >>> tuple(layer(keras.ops.ones((2, 7, 3))).shape)
    (2, 7, 4)
    """

    cell_class = BNLSTMCell
    cell_name = "bnlstm_cell"

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
        use_fused: Switch = "auto",
        zoneout: float = 0.0,
        cell_zoneout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(named_arguments(locals()), **kwargs)
        self._has_warned = False

    def build(
        self, sequences_shape: Shape, initial_state_shape: Any = None
    ) -> None:
        """Builds the cell for sequences (B, T, D)."""
        if self.cell.steps is None and len(sequences_shape) == 3:
            arguments.check_steps("sequences", sequences_shape)
            self.cell.steps = sequences_shape[1]
        super().build(sequences_shape)
        if self.stateful and len(self.states) == len(self.state_size):
            # Appended, because Keras would save an assigned list. Keras treats
            # this state like all states, for example sets it to zero, except
            # for the assignment after a call.
            # test_the_count_is_a_state notices a change.
            self.states.append(
                keras.Variable(
                    0, dtype="int32", trainable=False, name="rnn_step"
                )
            )

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
        first_step: Any = None,
    ) -> Any:
        """Runs the cell over `sequences` (B, T, D); see the class."""
        if first_step is None:
            counts = self.stateful and initial_state is None
            first_step = self.states[-1].value if counts else 0
        else:
            mask = mask_of(sequences) if mask is None else mask
        first_step = check_first_step(first_step)
        # If nothing is normalised, statistics may have no steps.
        first_step = within(first_step, self.cell.steps or 0)
        outputs = self._call(
            sequences,
            initial_state,
            mask,
            training,
            reset,
            reset_state,
            first_step=first_step,
        )
        if self.stateful:
            steps = keras.ops.shape(sequences)[1]
            self.states[-1].assign(
                within(
                    keras.ops.convert_to_tensor(first_step + steps, "int32"),
                    self.cell.steps or 0,
                )
            )
        return outputs

    def compute_output_spec(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
        first_step: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        if first_step is not None:
            check_first_step(first_step)
        return super().compute_output_spec(
            *(sequences, initial_state, mask, training, reset, reset_state),
            **kwargs,
        )

    def inner_loop(
        self,
        sequences: Any,
        initial_state: Any,
        mask: Any,
        training: bool | None = False,
        reset: Any = None,
        reset_state: Any = None,
        first_step: Any = 0,
    ) -> Any:
        """As in the base class; training also updates the moving statistics."""
        cell = self.cell
        learn = bool(training and cell.trainable and cell.normalize)
        if learn and sequences.shape[0] == 1:
            warn_of_one(self)
        spec, options = self.as_problem()
        options = options._replace(training=bool(training))
        arrays = self.arrays(options, sequences, initial_state, mask, training)
        arrays, moving = split_moving(arrays)
        if not learn:
            steps = keras.ops.shape(sequences)[1]
            arrays |= statistics_of(moving, steps, first_step)
        results = engine.run(spec, arrays, options)
        if learn:
            # Here and once: JAX allows no assignment inside a scan, and
            # TensorFlow traces the first step twice.
            moved = moved_statistics(
                moving,
                statistics_in(results),
                cell.momentum,
                arrays.get("mask"),
                self.go_backwards,
                first_step,
            )
            for name, value in moved.items():
                getattr(cell, name).assign(value)
        return self.results(results)
