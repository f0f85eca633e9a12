"""Batch normalization of a sequence, step by step."""

from __future__ import annotations

from typing import Any

import keras
from keras import initializers

from keras_ln.engine import arguments
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.normalization.batch_normalization import warn_of_one
from keras_ln.layers.types import Identifier, Shape
from keras_ln.ops.norms.batch_normalization import (
    batch_statistics,
    normalize,
    static_count,
    statistics_of_steps,
    update_step_statistics,
)
from keras_ln.ops.padding import with_usable_padding

# Cooijmans et al. start here: a gain of 1 saturates the tanh of an LSTM.
SMALL_GAIN = initializers.Constant(0.1)


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class RecurrentBatchNorm(BaseLayer):
    """Batch normalization with statistics of each time step.

        y[:, t] = gamma * (x[:, t] - mean_t) / sqrt(variance_t + epsilon) + beta

    `gamma` and `beta` are shared over time. Training takes `mean_t` and
    `variance_t` over the batch at step t, in two passes and in at least
    float32. Inference uses the moving statistics of step t, and beyond
    `max_steps` the last step's. With `sequence_wise` all steps share one mean
    and one variance per feature, taken over the batch and its steps.

    Every training batch updates the moving statistics:

        moving = momentum * moving + (1 - momentum) * batch

    They keep their values at steps beyond `max_steps`, at steps that the batch
    does not reach or masks in every row, and for entries whose batch
    statistics are not finite because of a NaN. The outputs, and so the loss,
    show the NaN.

    | weight            | shape | initial value | trained |
    |-------------------|-------|---------------|---------|
    | `gamma`           | (F,)  | 0.1           | yes     |
    | `beta`            | (F,)  | 0             | yes     |
    | `moving_mean`     | (S,F) | 0             | no      |
    | `moving_variance` | (S,F) | 1             | no      |

    S is `max_steps`, or 1 with `sequence_wise`.

    Input: tensor (B, T, F) (integers are cast to floating point), and an
    optional mask (B, T). Masked entries do not count; a masked NaN, infinity
    or number above 1e18 is normalised as 0. Output: (B, T, F), in the layer's
    compute dtype. The mask passes through. A step that is masked in every row
    is only scaled and shifted.

    Args:
        {arguments}

    Raises:
        ValueError: if an argument is out of its range; when built, if the
            input's rank is not 3, its number of features is unknown, or its
            number of steps is unknown and `max_steps` is None; when called,
            if the input is complex, its number of features has changed, the
            mask is not (B, T), or n is 1 with `unbiased`.

    Source: Cooijmans et al., "Recurrent Batch Normalization" (2016), sec. 3.

    >>> import keras
    >>> layer = RecurrentBatchNorm(gamma_initializer="ones")
    >>> x = keras.ops.convert_to_tensor([[[1.0], [5.0]], [[3.0], [5.0]]])
    >>> y = layer(x, training=True)
    >>> print(keras.ops.convert_to_numpy(y)[:, :, 0].round(3))
    [[-1.  0.]
     [ 1.  0.]]
    """

    def __init__(
        self,
        max_steps: int | None = None,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = SMALL_GAIN,
        unbiased: bool = False,
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        sequence_wise: bool = False,
        **kwargs: Any,
    ) -> None:
        named = named_arguments(locals())
        super().__init__(**kwargs)
        self.keep_arguments(named)
        self.gamma = None
        self.beta = None
        self.moving_mean: Any = None
        self.moving_variance: Any = None
        self.supports_masking = True
        self._has_warned = False

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (B, T, F) of this shape."""
        arguments.check_rank("inputs", input_shape, "batch, time, features")
        arguments.check_steps("inputs", input_shape)
        features = arguments.check_known("inputs", input_shape, -1)
        if self.scale:
            self.add_as_asked("gamma", (features,))
        if self.center:
            self.add_as_asked("beta", (features,))
        rows = 1
        if not self.sequence_wise:
            rows = known_steps(self.max_steps or input_shape[1])
        self.add_moving_statistics(
            ("moving_mean", "moving_variance"), (rows, features)
        )
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: features})

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalises `inputs` (B, T, F); masked entries do not count.

        Training uses the batch statistics and updates the moving ones.
        """
        inputs = self.as_floating("inputs", inputs)
        if mask is not None:
            mask = arguments.dense_tensor("mask", mask)
            arguments.check_flags("mask", mask, inputs.shape)
            mask = keras.ops.cast(mask, "bool")
            inputs = with_usable_padding(inputs, mask)
        if training and self.trainable:
            mean, variance = self._learn(inputs, mask)
        else:
            steps = keras.ops.shape(inputs)[1]
            mean = statistics_of_steps(self.moving_mean, steps)
            variance = statistics_of_steps(self.moving_variance, steps)
        return normalize(
            inputs, mean, variance, self.gamma, self.beta, self.epsilon
        )

    def _learn(self, inputs, mask):
        """The batch's statistics (T or 1, F), after recording them."""
        axes = (0, 1) if self.sequence_wise else (0,)
        valid = None
        if mask is not None:
            valid = keras.ops.any(mask, axis=axes)
            mask = keras.ops.expand_dims(mask, -1)
        mean, variance = batch_statistics(
            inputs, mask, axes, unbiased=self.unbiased
        )
        if static_count(inputs.shape, axes) == 1:
            warn_of_one(self)
        if self.sequence_wise:
            mean, variance, valid = (
                None if x is None else keras.ops.expand_dims(x, 0)
                for x in (mean, variance, valid)
            )
        moved_mean, moved_variance = update_step_statistics(
            self.moving_mean,
            self.moving_variance,
            mean,
            variance,
            self.momentum,
            valid,
        )
        self.moving_mean.assign(moved_mean)
        self.moving_variance.assign(moved_variance)
        return mean, variance

    def compute_output_shape(
        self, input_shape: Shape
    ) -> tuple[int | None, ...]:
        """The shape of the input."""
        return tuple(input_shape)


def known_steps(steps: int | None) -> int:
    """Returns the number of steps; `ValueError` if it is unknown."""
    if steps is None:
        raise ValueError(
            "Argument `max_steps` must be given (an integer >= 1) if the "
            "number of time steps is unknown. Received: max_steps=None and "
            "inputs of unknown length."
        )
    return steps
