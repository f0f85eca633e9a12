"""Weight normalization around any layer with a kernel."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras

from keras_ln._keras import mask_of, set_mask, uncast
from keras_ln.engine import arguments
from keras_ln.engine.portable import current_trace
from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.configs import config_of, from_config
from keras_ln.layers.normalization.kernels import (
    check_can_be_wrapped,
    kernel_with_bias,
    kernels_of,
    refuse_other_kernels,
    standardizing_arrays,
)
from keras_ln.layers.types import Shape
from keras_ln.ops.norms.weight_normalization import normalized_kernel
from keras_ln.ops.padding import with_usable_padding

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Self


def _of_layer(name: str) -> Any:
    return property(
        lambda self: getattr(self.layer, name),
        lambda self, value: setattr(self.layer, name, value),
        doc=f"The layer's `{name}`.",
    )


@keras.saving.register_keras_serializable(package="keras_ln")
class WeightNormalization(BaseLayer, keras.layers.Wrapper):
    """A layer whose kernels' columns are `g * v / ||v||`.

    The kernel of the wrapped layer is v. During a call the layer sees
    `g * v / ||v||` instead, with the Euclidean norm of each unit's column of
    v, so that the length and the direction of a unit's weights are trained
    separately. The kernel is normalised in at least float32, once per call. A
    column of zeros stays zero.

    | layer                           | `kernel`      | `g`    | norm over |
    |---------------------------------|---------------|--------|-----------|
    | Dense                           | (D, U)        | (U,)   | D         |
    | Conv1D, Conv2D, Conv3D          | (..., D, U)   | (U,)   | all but U |
    | Conv1DTranspose and its like    | (..., U, D)   | (U,)   | all but U |
    | DepthwiseConv1D, 2D             | (..., D, M)   | (D, M) | the steps |
    | EinsumDense                     | by `equation` | units' | the rest  |
    | with a `kernel` of another kind | (..., U)      | (U,)   | all but U |

    LSTM, GRU, SimpleRNN, and RNN with any cells, have two kernels, with the
    gains `kernel_g` and `recurrent_g`; SeparableConv1D and 2D have
    `depthwise_g` and `pointwise_g`. These names get the prefix `cell_0_` and
    so on with several cells, and `forward_` or `backward_` inside
    Bidirectional.

    The gains start at the norms of the columns, so that wrapping a layer, new
    or trained, does not change its outputs. Regularizers and constraints of a
    kernel apply to v.

    Inputs, outputs, masks, states and call arguments are the wrapped layer's,
    and so are the attributes that Bidirectional needs and the dtype policy. In
    masked entries of the input, NaN, infinity and numbers above 1e18 count
    as 0.

    Args:
        layer: the layer, built or not.
        **kwargs: arguments of `keras.layers.Layer`, such as `name`. `dtype`
            and, unless it is given, `trainable` are the wrapped layer's.

    Raises:
        ValueError: if `layer` is not a layer, has no kernel (checked at the
            latest when it is built), is a cell, is already normalised, is
            quantised or has LoRA, was made in a `keras.RematScope`, or has a
            dtype policy other than `dtype`.
        NotImplementedError: if the wrapped layer is quantised or LoRA enabled
            later; `model.quantize` warns of it and leaves the layer as it is.

    Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 2.

    >>> import keras
    >>> layer = WeightNormalization(keras.layers.Conv1D(4, 3))
    >>> tuple(layer(keras.ops.ones((2, 7, 5))).shape)
    (2, 5, 4)
    >>> [(w.name, tuple(w.shape)) for w in layer.weights]
    [('g', (4,)), ('kernel', (3, 5, 4)), ('bias', (4,))]
    """

    # For Bidirectional, and for users of stateful layers.
    go_backwards = _of_layer("go_backwards")
    return_sequences = _of_layer("return_sequences")
    return_state = _of_layer("return_state")
    stateful = _of_layer("stateful")
    zero_output_for_mask = _of_layer("zero_output_for_mask")
    use_cudnn = _of_layer("use_cudnn")
    states = _of_layer("states")
    reset_state = _of_layer("reset_state")
    get_initial_state = _of_layer("get_initial_state")

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        check_can_be_wrapped(layer, WeightNormalization)
        of_layer = layer.dtype_policy
        policy = keras.dtype_policies.get(kwargs.pop("dtype", None) or of_layer)
        if policy.name != of_layer.name:
            raise ValueError(
                "WeightNormalization has the dtype of the wrapped layer. Give "
                f"`dtype` to that layer. Received: dtype={policy.name!r} "
                f"around {layer.name} of dtype {of_layer.name!r}."
            )
        kwargs.setdefault("trainable", layer.trainable)
        super().__init__(layer, dtype=of_layer, **kwargs)
        refuse_other_kernels(layer)
        self._gains: dict[str, Any] = {}
        self._call_arguments = (*inspect.signature(layer.call).parameters,)
        self.supports_masking = True
        self.input_spec = layer.input_spec

    def build(self, input_shape: Shape) -> None:
        """Builds the wrapped layer if necessary, and creates the gains."""
        super().build(input_shape)
        self.input_spec = self.layer.input_spec
        for kernel in kernels_of(self.layer):
            self._gains[kernel.gain] = self.add_gains(
                kernel.gain, kernel.variable, kernel.columns
            )

    def call(
        self,
        inputs: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Calls the layer with normalised kernels."""
        options = self._options(initial_state, mask, training, kwargs)
        usable = with_usable_padding(inputs, mask)
        if usable is not inputs:
            # The wrapped layer sees the mask too, and warns if it ignores it.
            set_mask(usable, mask_of(inputs))
        with _Substitution(self._normalized_kernels()) as scope:
            outputs = self.layer(usable, **options)
        for loss in scope.losses_left():
            self.add_loss(loss)
        return outputs

    def compute_output_spec(
        self,
        inputs: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Shapes and dtypes of the layer's outputs for symbolic inputs."""
        options = self._options(initial_state, mask, training, kwargs)
        return self.layer.compute_output_spec(inputs, **options)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped layer's output shape."""
        return self.layer.compute_output_shape(*args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The layer's mask; None if the layer does not support masks."""
        if not self.layer.supports_masking:
            return None
        return self.layer.compute_mask(inputs, previous_mask)

    def remove(self) -> Any:
        """A plain layer of the wrapped layer's class with the same outputs.

        Its kernels are `g * v / ||v||`; its arguments and other weights are
        copies of the wrapped layer's. The wrapped layer does not change. The
        states of a stateful layer start at zero, as after loading.

        Raises:
            ValueError: if there are no weights yet, or the layer's config does
                not make it again.
        """
        self.check_built("remove")
        layer = self.layer
        plain = from_config(layer, config_of(layer))
        if not plain.built:
            plain.build_from_config(layer.get_build_config())
        kernels = self._normalized_kernels()
        for new, old in zip(plain.variables, layer.variables, strict=True):
            # A copy, because `fit` on JAX donates the tensor itself.
            value = kernels.get(id(old), old)
            new.assign(keras.ops.convert_to_numpy(value))
        return plain

    def initialize_from_data(self, x: Any, scale: float = 1.0) -> None:
        """Sets the gain and the bias from data, once, before training.

        Afterwards the pre-activations of `x` have mean 0 and standard
        deviation `scale` (dividing by n) in every unit, over all other axes. v
        does not change.

        Args:
            x: tensor or array of typical inputs of this layer.
            scale: the standard deviation, > 0.

        Raises:
            ValueError: if `scale` is not positive; if the layer is recurrent,
                has two kernels, or no bias for each unit; if a column of v is
                zero, a unit's pre-activations are constant or not finite over
                `x`, or the dtype of g cannot hold the gain or bias.

        Source: Salimans and Kingma, "Weight Normalization" (2016), eq. 5, 6.
        """
        arguments.check_positive("scale", scale)
        x = keras.ops.convert_to_tensor(x)
        arguments.check_floating("x", x.dtype)
        if not self.built:
            self.build(tuple(x.shape))
        kernel = kernel_with_bias(self.layer)
        g, values = standardizing_arrays(self.layer, kernel, x, scale)
        self._gains[kernel.gain].assign(g)
        self.layer.bias.assign(values)

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> Self:
        """A layer from its `get_config`.

        `go_backwards`, which Bidirectional adds, goes to the wrapped layer.
        """
        config = dict(config)
        inside = config.pop("layer")
        if "go_backwards" in config:
            inside = {
                **inside,
                "config": {
                    **inside["config"],
                    "go_backwards": config.pop("go_backwards"),
                },
            }
        layer = keras.saving.deserialize_keras_object(
            inside, custom_objects=custom_objects
        )
        return cls(layer, **config)

    def _options(self, initial_state, mask, training, others):
        """The arguments that the layer's call takes."""
        options = {"mask": mask, "training": training}
        options = {
            name: value
            for name, value in options.items()
            if value is not None and name in self._call_arguments
        }
        if initial_state is not None:
            options["initial_state"] = initial_state
        return {**options, **others}

    def _normalized_kernels(self):
        """The tensors that replace the kernels in a call, by kernel id."""
        return {
            id(kernel.variable): normalized_kernel(
                uncast(kernel.variable),
                self._gains[kernel.gain],
                kernel.columns,
            )
            for kernel in kernels_of(self.layer)
        }


class _Substitution(keras.StatelessScope):
    """A scope that changes the values of some variables and nothing else.

    A plain `StatelessScope` hides the scope around it, in which `fit` on JAX
    keeps the values of all variables, and holds back assignments and losses.
    This scope lets them through. Like every such scope it belongs to a thread,
    and ends with its block, after an error too.

    Keras' loops on JAX open a scope if there is none, so that values made in
    the loop stay in it. If this scope is the only one, it keeps these values.
    """

    def __init__(self, values: Mapping[int, Any]) -> None:
        """Takes the tensors that replace variables, by the variables' `id`."""
        super().__init__(collect_losses=True)
        self._values = dict(values)
        # (id, trace, value) of variables that a loop assigns.
        self._in_loops: list[tuple[int, Any, Any]] = []

    def __enter__(self) -> _Substitution:
        super().__enter__()
        self._trace = current_trace()
        if self.original_scope is not None:
            self.collect_losses = self.original_scope.collect_losses
            self.losses = self.original_scope.losses
        return self

    def get_current_value(self, variable: keras.Variable) -> Any:
        """The value inside, or None for the variable's own."""
        if id(variable) in self._values:
            return self._values[id(variable)]
        if self.original_scope is not None:
            return self.original_scope.get_current_value(variable)
        trace = current_trace() if self._in_loops else None
        for key, its_trace, value in reversed(self._in_loops):
            if key == id(variable) and its_trace == trace:
                return value
        return None

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Assigns outside of this scope, or in a loop that runs inside it."""
        variable, value = update
        trace = current_trace()
        if self.original_scope is None and trace != self._trace:
            self._in_loops.append((id(variable), trace, value))
            return
        self.__exit__()
        try:
            variable.assign(value)
        finally:
            self.__enter__()

    def losses_left(self) -> list[Any]:
        """The losses added inside, unless a scope around this one has them."""
        return [] if self.original_scope is not None else self.losses
