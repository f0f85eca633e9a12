"""Layer normalization as a Keras layer."""

from __future__ import annotations

from typing import Any

import keras

from keras_ln.engine import arguments
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import named_arguments, without
from keras_ln.layers.docstrings import documented
from keras_ln.layers.types import Identifier, Shape
from keras_ln.ops.norms.layer_normalization import layer_normalization
from keras_ln.ops.padding import with_usable_padding


@keras.saving.register_keras_serializable(package="keras_ln")
@documented
class LayerNormalization(BaseLayer):
    """Layer normalization (Ba, Kiros and Hinton 2016, eq. 3).

        y = gamma * (x - mean) / sqrt(variance + epsilon) + beta

    with the mean and the biased variance of each example over `axis`. The
    result does not depend on the other examples of a batch and is the same in
    training and inference. Statistics are computed in two passes and in at
    least float32; the gradient is hand-written and keeps no intermediate
    result of the input's size.

    | weight  | shape                           | initial value |
    |---------|---------------------------------|---------------|
    | `gamma` | sizes of the input along `axis` | 1             |
    | `beta`  | sizes of the input along `axis` | 0             |

    Input: tensor of any rank >= 1 (integers are cast to floating point).
    Output: the same shape, in the layer's compute dtype. Masks pass through.
    A mask covers the first axes of the input; masked entries are normalised
    too, with NaN, infinity and numbers above 1e18 replaced by 0.

    Args:
        {arguments}

    Raises:
        TypeError: if `axis` is not an integer or a list or tuple of integers.
        ValueError: if `epsilon` is negative or not finite; when built, if an
            axis does not exist or its size is unknown; when called, if the
            input is complex or its size along `axis` has changed.

    Source: Ba, Kiros and Hinton, "Layer Normalization" (2016), eq. 3, 15, 16.

    >>> import keras
    >>> layer = LayerNormalization()
    >>> y = layer(keras.ops.convert_to_tensor([[1.0, 3.0], [5.0, 5.0]]))
    >>> print(keras.ops.convert_to_numpy(y).round(3))
    [[-1.  1.]
     [ 0.  0.]]
    """

    def __init__(
        self,
        axis: int | list[int] | tuple[int, ...] = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        **kwargs: Any,
    ) -> None:
        named = named_arguments(locals())
        super().__init__(**without(kwargs, rms_scaling=False))
        self.keep_arguments(named)
        self.gamma = None
        self.beta = None
        self.supports_masking = True
        # A float32 input of a float16 layer is rounded after the
        # normalisation rather than before it.
        self.autocast = False

    def build(self, input_shape: Shape) -> None:
        """Creates `gamma` and `beta` for inputs of this shape."""
        axes = arguments.check_axes(self.axis, len(input_shape))
        shape = tuple(
            arguments.check_known("inputs", input_shape, axis) for axis in axes
        )
        if self.scale:
            self.add_as_asked("gamma", shape)
        if self.center:
            self.add_as_asked("beta", shape)
        # Negative axes stay as given: a layer over the last axis takes
        # inputs of several ranks.
        given = self.axis if isinstance(self.axis, list) else [self.axis]
        self.input_spec = keras.layers.InputSpec(
            min_ndim=max(axis + 1 if axis >= 0 else -axis for axis in given),
            axes={axis: input_shape[axis] for axis in given},
        )

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """Normalises `inputs` of any rank; the class describes `mask`."""
        inputs = self.as_floating("inputs", inputs)
        # The op rounds to its input's dtype, which may be narrower.
        wider = keras.backend.result_type(inputs.dtype, self.compute_dtype)
        if wider == self.compute_dtype:
            inputs = keras.ops.cast(inputs, wider)
        outputs = layer_normalization(
            with_usable_padding(inputs, mask),
            self.gamma,
            self.beta,
            self.axis,
            self.epsilon,
        )
        return keras.ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(
        self, input_shape: Shape
    ) -> tuple[int | None, ...]:
        """The shape of the input."""
        arguments.check_axes(self.axis, len(input_shape))
        return tuple(input_shape)
