"""Batch normalization with the biased or the unbiased variance."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from keras_ln.engine import arguments
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import named_arguments
from keras_ln.layers.docstrings import documented
from keras_ln.layers.types import Identifier, Shape
from keras_ln.ops.argument_table import accept
from keras_ln.ops.norms.batch_normalization import (
    batch_statistics,
    normalize,
    static_count,
    update_moving_statistics,
)
from keras_ln.ops.padding import with_usable_padding


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class BatchNormalization(BaseLayer, keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` plus `unbiased`.

    Training computes

        y = gamma * (x - mean) / sqrt(variance + epsilon) + beta

    with the mean and the variance of each feature over the batch (and over
    every axis except `axis`), in two passes and in at least float32. Inference
    uses the moving statistics instead, which every training batch updates:

        moving = momentum * moving + (1 - momentum) * batch

    If the batch statistics of a feature are not finite (because of a NaN), the
    feature keeps its moving statistics; the output of that batch, and so the
    loss, shows the NaN.

    The variance divides by n, the number of elements of a statistic, or by
    n - 1 with `unbiased`. For n = 1 the biased variance makes the output
    exactly `beta`, and the layer warns once if n is known. The unbiased
    variance is not defined for n = 1: the layer raises an error if n is known
    when the graph is built, and otherwise gives NaN.

    Use it before the activation. It cancels the bias of the layer before it,
    so turn that bias off.

    | weight            | shape | initial value | trained |
    |-------------------|-------|---------------|---------|
    | `gamma`           | (F,)  | 1             | yes     |
    | `beta`            | (F,)  | 0             | yes     |
    | `moving_mean`     | (F,)  | 0             | no      |
    | `moving_variance` | (F,)  | 1             | no      |

    Input: tensor of any rank with F features along `axis` (integers are cast
    to floating point), and an optional mask. Masked elements do not count; a
    masked NaN, infinity or number above 1e18 is normalised as 0. Output: the
    shape of the input, in the layer's compute dtype.

    The mask has the shape of the input without the last axis, as Keras' layers
    make it; if that does not fit, without `axis`. Axes of size 1 in the mask
    are broadcast.

    Args:
        axis: the axis of the features.
        {arguments}
            With Keras' arguments `renorm` or `synchronized`, the layer gives
            exactly the results of Keras' layer.

    Raises:
        ValueError: if an argument is out of its range; if `unbiased` is
            combined with `renorm` or `synchronized`; when built, if the size
            of `axis` is unknown; when called, if the input is complex or its
            shape does not fit, or if n is 1 with `unbiased`.

    Source: Ioffe and Szegedy, "Batch Normalization" (2015), algorithms 1, 2.

    >>> import keras
    >>> layer = BatchNormalization(unbiased=True)
    >>> x = keras.ops.convert_to_tensor([[1.0], [3.0]])
    >>> y = layer(x, training=True)
    >>> print(keras.ops.convert_to_numpy(y).round(3))
    [[-0.707]
     [ 0.707]]
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        moving_mean_initializer: Identifier = "zeros",
        moving_variance_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        *,
        unbiased: bool = False,
        **kwargs: Any,
    ) -> None:
        # Keras' layer accepts a single axis.
        axis = arguments.check_integer("axis", axis)
        named = named_arguments(locals())
        kept = {name: accept(name, value) for name, value in named.items()}
        unbiased = kept.pop("unbiased")
        super().__init__(**kept, **kwargs)
        self.unbiased = unbiased
        self._as_keras = any(
            kwargs.get(name) for name in ("renorm", "synchronized")
        )
        if self._as_keras and self.unbiased:
            raise ValueError(
                "`unbiased=True` cannot be combined with `renorm` or "
                "`synchronized`, which compute the variance as Keras does. "
                "Turn one of them off."
            )
        self._has_warned = False

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs of this shape."""
        (axis,) = arguments.check_axes(self.axis, len(input_shape))
        arguments.check_known("inputs", input_shape, axis)
        super().build(input_shape)

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalises `inputs` (..., F, ...); masked elements do not count.

        Training uses the batch statistics and updates the moving ones.
        """
        inputs = self.as_floating("inputs", inputs)
        rank = len(inputs.shape)
        features, given = self.axis % rank, mask
        if mask is not None:
            mask = self._spread_mask(mask, inputs, features)
            inputs = with_usable_padding(inputs, mask)
        if self._as_keras:
            return super().call(inputs, training=training, mask=given)
        if training and self.trainable:
            axes = [axis for axis in range(rank) if axis != features]
            mean, variance = batch_statistics(
                inputs, mask, axes, unbiased=self.unbiased
            )
            if static_count(inputs.shape, axes) == 1:
                warn_of_one(self)
            moved_mean, moved_variance = update_moving_statistics(
                self.moving_mean,
                self.moving_variance,
                mean,
                variance,
                self.momentum,
                valid=None if mask is None else keras.ops.any(mask),
            )
            self.moving_mean.assign(moved_mean)
            self.moving_variance.assign(moved_variance)
        else:
            mean, variance = self.moving_mean, self.moving_variance

        shape = [1] * rank
        shape[features] = -1

        def spread(vector):
            return None if vector is None else keras.ops.reshape(vector, shape)

        return normalize(
            inputs,
            spread(mean),
            spread(variance),
            spread(self.gamma),
            spread(self.beta),
            self.epsilon,
        )

    def _spread_mask(self, mask, inputs, features):
        """The mask over all elements; along `axis` it may have size 1."""
        rank, sizes = len(inputs.shape), tuple(inputs.shape)
        # Keras' own masks leave out the last axis, whatever `axis` is.
        for axis in (rank - 1, features):
            wanted = sizes[:axis] + sizes[axis + 1 :]
            if len(mask.shape) == rank - 1 and all(
                size == 1 or arguments.may_equal(size, expected)
                for size, expected in zip(mask.shape, wanted, strict=True)
            ):
                break
        else:
            raise ValueError(
                "Argument `mask` must have the shape of `inputs` without "
                f"the last axis, or without axis {self.axis}. Received: mask "
                f"of shape {tuple(mask.shape)}, inputs of shape {sizes}"
            )
        mask = keras.ops.expand_dims(keras.ops.cast(mask, "bool"), axis)
        # Broadcast, because the statistics count the mask's elements.
        target = list(keras.ops.shape(inputs))
        if axis == features:
            target[axis] = 1
        return keras.ops.broadcast_to(mask, target)

    def get_config(self) -> dict[str, Any]:
        """Every argument of the constructor."""
        return super().get_config() | {"unbiased": self.unbiased}


def warn_of_one(layer: Any) -> None:
    """Warns, once per layer, that one element has no variance."""
    if layer._has_warned:
        return
    layer._has_warned = True
    warnings.warn(
        f"{type(layer).__name__} layer {layer.name!r} trains on one element "
        "per statistic: the variance is 0 and the output is beta for every "
        "input. Use larger batches, or keras_ln.LayerNormalization.",
        stacklevel=3,
    )
