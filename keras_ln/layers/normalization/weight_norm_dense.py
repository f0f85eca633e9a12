"""A densely connected layer with weight normalization."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_ln.engine import arguments, dtypes
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import named_arguments, without
from keras_ln.layers.docstrings import documented
from keras_ln.layers.types import Identifier, Shape
from keras_ln.ops.argument_table import accept
from keras_ln.ops.norms.weight_normalization import (
    column_norms,
    normalized_kernel,
    standardizing_parameters,
    weight_norm_dense,
)
from keras_ln.ops.padding import with_usable_padding


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class WeightNormDense(BaseLayer):
    """`keras.layers.Dense` whose kernel columns are `g * v / ||v||`.

        y = activation(x . (g * v / ||v||) + bias)

    The norm runs over the input axis, one per unit, so that the length and the
    direction of a unit's weights are trained separately. The kernel is
    normalised in at least float32. A column of zeros has no direction; its
    unit gives only the bias.

    | weight   | shape | initial value                       |
    |----------|-------|-------------------------------------|
    | `kernel` | (D,U) | `kernel_initializer`; the v above   |
    | `g`      | (U,)  | the norms of the kernel's columns   |
    | `bias`   | (U,)  | 0                                   |

    An untrained layer therefore equals a Dense layer with the same kernel.

    Input: tensor (..., D) of rank >= 2 (integers are cast to floating point).
    Output: (..., U), in the layer's compute dtype. Masks pass through. In
    masked entries, NaN, infinity and numbers above 1e18 count as 0.

    Args:
        activation: a name, a callable, or None for the identity.
        {arguments}

    Raises:
        ValueError: if `units` is not a positive integer; when built, if D is
            unknown or the rank is less than 2; when called, if the input is
            complex or D has changed.

    Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2.

    >>> import keras
    >>> layer = WeightNormDense(1, kernel_initializer="ones")
    >>> y = layer(keras.ops.convert_to_tensor([[1.0, 2.0, 3.0]]))
    >>> print(keras.ops.convert_to_numpy(y).round(3))
    [[6.]]
    """

    def __init__(
        self,
        units: int,
        activation: Identifier = None,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        named = named_arguments(locals())
        super().__init__(
            activity_regularizer=accept(
                "activity_regularizer", activity_regularizer
            ),
            **without(kwargs, quantization_config=None),
        )
        self.keep_arguments(named)
        self.kernel: Any = None
        self.g: Any = None
        self.bias: Any = None
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights for inputs (..., D) of this shape."""
        features = arguments.check_known("inputs", input_shape, -1)
        # The kernel is normalised in its own precision, and then cast.
        self.add_as_asked("kernel", (features, self.units))
        self.g = self.add_gains("g", self.kernel)
        if self.use_bias:
            self.add_as_asked("bias", (self.units,), autocast=True)
        self.input_spec = keras.layers.InputSpec(
            min_ndim=2, axes={-1: features}
        )

    def call(self, inputs: Any, mask: Any = None, training: Any = None) -> Any:
        """Maps `inputs` (..., D) to (..., U); the class describes `mask`.

        `training` changes nothing: `keras.layers.Dense` has it too.
        """
        inputs = self.as_floating("inputs", inputs)
        inputs = with_usable_padding(inputs, mask)
        return self.activation(
            weight_norm_dense(inputs, self.kernel, self.g, self.bias)
        )

    @property
    def normalized_kernel(self) -> Any:
        """The effective kernel `g * v / ||v||` (D, U)."""
        self.check_built("normalized_kernel")
        return normalized_kernel(self.kernel, self.g)

    def to_dense(self) -> Any:
        """A plain `keras.layers.Dense` with the same outputs.

        The initializer, regularizer and constraint of `kernel` are not copied,
        because they apply to v.
        """
        self.check_built("to_dense")
        dense = keras.layers.Dense(
            self.units,
            activation=self.activation,
            use_bias=self.use_bias,
            bias_initializer=self.bias_initializer,
            bias_regularizer=self.bias_regularizer,
            activity_regularizer=self.activity_regularizer,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=self.name,
        )
        dense.build((None, self.kernel.shape[0]))
        weights = [self.normalized_kernel]
        if self.bias is not None:
            weights.append(self.bias)
        dense.set_weights([keras.ops.convert_to_numpy(w) for w in weights])
        return dense

    def initialize_from_data(self, x: Any, scale: float = 1.0) -> None:
        """Sets `g` and `bias` from data, once, before training.

        Afterwards the pre-activations of `x` have mean 0 and standard
        deviation `scale` (dividing by n) in every unit. v does not change.

        Args:
            x: tensor or array (..., D) of typical inputs of this layer.
            scale: the standard deviation, > 0.

        Raises:
            ValueError: if `scale` is not positive, the layer has no bias,
                a column of v is zero, a unit's pre-activations are constant
                or not finite over `x`, or the dtype of g cannot hold the gain
                or bias.

        Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 5, 6.
        """
        arguments.check_positive("scale", scale)
        if not self.use_bias:
            raise ValueError(
                "`initialize_from_data` needs use_bias=True: it sets the bias "
                "so that the mean is 0. Received: use_bias=False"
            )
        x = keras.ops.convert_to_tensor(x)
        arguments.check_floating("x", x.dtype)
        if not self.built:
            self.build(tuple(x.shape))
        if len(x.shape) < 2 or x.shape[-1] != self.kernel.shape[0]:
            raise ValueError(
                f"Argument `x` must be of shape (..., {self.kernel.shape[0]})"
                f" and rank >= 2. Received: shape {tuple(x.shape)}"
            )
        refuse_units(
            keras.ops.convert_to_numpy(column_norms(self.kernel)) == 0,
            ZERO_COLUMN,
        )
        found = standardizing_parameters(x, self.kernel, scale)
        g, bias = gain_and_bias(*found, self.variable_dtype)
        self.g.assign(g)
        self.bias.assign(bias)

    def compute_output_shape(
        self, input_shape: Shape
    ) -> tuple[int | None, ...]:
        """(..., U) for (..., D)."""
        return (*input_shape[:-1], self.units)


def refuse_units(wrong: np.ndarray, reason: str) -> None:
    """`ValueError` that names the units for which `wrong` is True, if any."""
    if wrong.any():
        raise ValueError(
            f"`initialize_from_data` cannot set the units "
            f"{np.flatnonzero(wrong).tolist()}: {reason}."
        )


ZERO_COLUMN = "the kernel column is zero, so it has no direction"
CONSTANT = "the pre-activations are constant, or not finite, over `x`"


def gain_and_bias(
    g: Any, bias: Any, dtype: str
) -> tuple[np.ndarray, np.ndarray]:
    """Arrays for weights of this dtype.

    Raises:
        ValueError: if a unit's gain or bias is not finite, or the gain is 0.
    """
    to_numpy, cast = keras.ops.convert_to_numpy, keras.ops.cast
    wide = dtypes.at_least_float32(dtype)
    g, bias = to_numpy(g), to_numpy(bias)
    refuse_units(~(np.isfinite(g) & np.isfinite(bias)), CONSTANT)
    # Rounded to the dtype of the weights.
    g, bias = (to_numpy(cast(cast(w, dtype), wide)) for w in (g, bias))
    refuse_units(
        (g == 0) | ~(np.isfinite(g) & np.isfinite(bias)),
        f"the gain would be zero, or gain or bias infinite, in {dtype}",
    )
    return g, bias
