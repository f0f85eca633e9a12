"""The kernels of a Keras layer that WeightNormalization wraps.

The part of a kernel that belongs to one unit is called the unit's column.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_ln._keras import is_rematerialized
from keras_ln.engine import arguments, dtypes
from keras_ln.layers.normalization.weight_norm_dense import (
    ZERO_COLUMN,
    WeightNormDense,
    gain_and_bias,
    refuse_units,
)
from keras_ln.layers.rnn.wn_lstm import WNLSTMCell
from keras_ln.ops.norms.weight_normalization import (
    column_norms,
    normalized_kernel,
    standardizing_gain_and_shift,
)

# The name of the gain, by the attribute that holds the kernel. If a layer has
# only `kernel`, the gain is called g.
_GAINS = {
    "kernel": "kernel_g",
    "recurrent_kernel": "recurrent_g",
    "depthwise_kernel": "depthwise_g",
    "pointwise_kernel": "pointwise_g",
}
_TRANSPOSED = (
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
)
_DEPTHWISE = (keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)

# The methods that replace a kernel.
_REPLACING = ("quantize", "enable_lora")
# Layers whose kernels have gains already.
_NORMALIZED = (WeightNormDense, WNLSTMCell, keras.layers.SpectralNormalization)


class Kernel(NamedTuple):
    """A kernel: its variable, its gain's name, the axes of its units."""

    owner: keras.layers.Layer
    variable: keras.Variable
    gain: str
    units: tuple[int, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """The axes that a column runs over."""
        rank = len(self.variable.shape)
        return tuple(k for k in range(rank) if k not in self.units)

    @property
    def gain_shape(self) -> tuple[int, ...]:
        """One number for each column."""
        return tuple(self.variable.shape[k] for k in self.units)


def kernels_of(layer: keras.layers.Layer) -> list[Kernel]:
    """The kernels of a layer that is built, in the order of its weights.

    They include the kernels of cells and of layers inside Bidirectional and
    TimeDistributed.

    Raises:
        ValueError: if there is no kernel, or a kernel cannot be replaced.
    """
    kernels = [
        Kernel(owner, variable, gain, _units(owner, name, variable))
        for prefix, owner in owners(layer)
        for name, gain, variable in _variables(owner, prefix)
    ]
    if not kernels:
        raise ValueError(
            "WeightNormalization needs a layer with a kernel. Received: "
            f"{layer.name!r} of class {type(layer).__name__}, without one."
        )
    return kernels


def needs_plain_kernel(owner: keras.layers.Layer) -> str:
    """The error for a kernel that cannot be replaced, or will not be."""
    return (
        "WeightNormalization needs a floating-point kernel without "
        "quantisation or LoRA. Call `remove` on the normalisation before you "
        "quantise the layer or enable LoRA. "
        f"Received: {owner.name}, {type(owner).__name__}."
    )


def owners(
    layer: keras.layers.Layer, prefix: str = ""
) -> Iterator[tuple[str, keras.layers.Layer]]:
    """The layers that may have kernels, each with the gains' name prefix."""
    if isinstance(layer, keras.layers.Bidirectional):
        yield from owners(layer.forward_layer, f"{prefix}forward_")
        yield from owners(layer.backward_layer, f"{prefix}backward_")
    elif isinstance(layer, keras.layers.TimeDistributed):
        yield from owners(layer.layer, prefix)
    elif isinstance(layer, keras.layers.RNN):
        yield from owners(layer.cell, prefix)
    elif isinstance(layer, keras.layers.StackedRNNCells):
        for k, cell in enumerate(layer.cells):
            yield from owners(cell, f"{prefix}cell_{k}_")
    else:
        yield prefix, layer


def _variables(
    owner: keras.layers.Layer, prefix: str
) -> Iterator[tuple[str, str, keras.Variable]]:
    # A property in some layers, so it is read once.
    found = {name: getattr(owner, name, None) for name in _GAINS}
    found = {
        name: kernel for name, kernel in found.items() if kernel is not None
    }
    for name, kernel in found.items():
        if getattr(owner, "quantization_mode", None) or not (
            isinstance(kernel, keras.Variable)
            and keras.backend.is_float_dtype(kernel.dtype)
        ):
            raise ValueError(needs_plain_kernel(owner))
        gain = "g" if [*found] == ["kernel"] and not prefix else _GAINS[name]
        yield name, prefix + gain, kernel


def _units(
    owner: keras.layers.Layer, name: str, kernel: keras.Variable
) -> tuple[int, ...]:
    """The axes of the kernel that count its units."""
    last = len(kernel.shape) - 1
    if name == "depthwise_kernel" or isinstance(owner, _DEPTHWISE):
        return (last - 1, last)
    if isinstance(owner, _TRANSPOSED):
        return (last - 1,)
    if isinstance(owner, keras.layers.EinsumDense):
        letters, outputs = einsum_axes(owner)
        return tuple(k for k, axis in enumerate(letters) if axis in outputs)
    return (last,)


def einsum_axes(layer: keras.layers.EinsumDense) -> tuple[str, str]:
    """The letters of the kernel's and of the outputs' axes."""
    operands, _, outputs = layer.equation.partition("->")
    return operands.partition(",")[2], outputs


def check_can_be_wrapped(layer: Any, wrapper: type) -> None:
    """`ValueError` unless the layer has kernels of its own to normalise."""
    if not isinstance(layer, keras.layers.Layer):
        raise arguments.wrong("layer", "a layer of Keras 3", layer)
    if hasattr(layer, "state_size") and not isinstance(layer, keras.layers.RNN):
        raise ValueError(
            "WeightNormalization normalises the kernels of a sequence once, "
            "so it goes around the layer, as in "
            "WeightNormalization(keras.layers.RNN(cell)). Received: the cell "
            f"{layer.name}."
        )
    for _, owner in owners(layer):
        if getattr(owner, "quantization_mode", None) or getattr(
            owner, "lora_rank", None
        ):
            raise ValueError(needs_plain_kernel(owner))
        if isinstance(owner, (*_NORMALIZED, wrapper)):
            raise ValueError(
                f"{type(owner).__name__} normalises its kernel itself: leave "
                f"WeightNormalization out. Received: {layer.name}."
            )
    if is_rematerialized(layer):
        raise ValueError(
            "WeightNormalization replaces the kernel while the layer is "
            "called, but not when the call runs again in the backward pass. "
            "Make the layer outside of RematScope and WeightNormalization "
            "inside of it. "
            f"Received: {layer.name}, made in a RematScope."
        )
    if layer.built:
        kernels_of(layer)


def refuse_other_kernels(layer: Any) -> None:
    """Makes quantisation and LoRA of the wrapped layer raise an error.

    Model.quantize warns of `NotImplementedError` and leaves the layer out.
    """
    for _, owner in owners(layer):

        def refuse(*args: Any, owner: Any = owner, **kwargs: Any) -> None:
            raise NotImplementedError(needs_plain_kernel(owner))

        for name in _REPLACING:
            if hasattr(owner, name):
                setattr(owner, name, refuse)


def kernel_with_bias(layer: keras.layers.Layer) -> Kernel:
    """The only kernel of a built layer that has a bias for each unit.

    Raises:
        ValueError: if the layer has several kernels or no such bias.
    """
    kernel, *others = kernels_of(layer)
    if others or kernel.owner is not layer:
        raise ValueError(
            "`initialize_from_data` needs a layer with its own single kernel. "
            "It does not support recurrent layers, SeparableConv, or "
            "TimeDistributed around the layer. "
            f"Received: {type(layer).__name__}."
        )
    bias: Any = getattr(layer, "bias", None)
    size = 0 if bias is None else math.prod(bias.shape)
    received = f"{size} biases for the gains {kernel.gain_shape}"
    fits = size == math.prod(kernel.gain_shape)
    if fits and isinstance(layer, keras.layers.EinsumDense):
        letters, _ = einsum_axes(layer)
        units = [
            letters[k] for k in kernel.units if kernel.variable.shape[k] > 1
        ]
        fits = set(units) <= set(layer.bias_axes)
        received = f"bias_axes={layer.bias_axes!r} for the units {units}"
    if not fits:
        raise ValueError(
            "`initialize_from_data` needs a bias for each unit, which makes "
            f"its mean 0. Received: {layer.name} with {received}."
        )
    return kernel


def standardizing_arrays(
    layer: keras.layers.Layer, kernel: Kernel, x: Any, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Gain and bias, for pre-activations of mean 0 and deviation `scale`.

    The layer must be built, with one kernel and a bias. `ValueError` if a unit
    cannot be set.
    """
    norms = column_norms(kernel.variable, kernel.columns)
    refuse_units(keras.ops.convert_to_numpy(norms) == 0, ZERO_COLUMN)
    t = _directions(layer, kernel)(x)
    # The units last, all other axes merged into one before them.
    axes = _output_axes(layer, kernel, len(t.shape))
    others = [axis for axis in range(len(t.shape)) if axis not in axes]
    t = keras.ops.transpose(t, [*others, *axes])
    t = keras.ops.reshape(t, (-1, *kernel.gain_shape))
    found = standardizing_gain_and_shift(t, (0,), scale)
    g, bias = gain_and_bias(*found, layer.variable_dtype)
    # A bias has the axes in the order of the outputs.
    bias = bias.transpose(np.argsort(axes)) if len(axes) > 1 else bias
    return g, bias.reshape(layer.bias.shape)


def _directions(layer, kernel):
    """A copy of the layer, in at least float32, with the kernel v / ||v||."""
    dtype = dtypes.at_least_float32(layer.variable_dtype)
    changes = {
        "activation": "linear",
        "activity_regularizer": None,
        "dtype": dtype,
    }
    config = layer.get_config()
    config |= {n: value for n, value in changes.items() if n in config}
    copy = type(layer).from_config(config)
    copy.build_from_config(layer.get_build_config())
    unit = normalized_kernel(
        keras.ops.cast(kernel.variable, dtype),
        keras.ops.ones(kernel.gain_shape, dtype),
        kernel.columns,
    )
    for new, old in zip(copy.weights, layer.weights, strict=True):
        if old is layer.bias:
            new.assign(keras.ops.zeros(new.shape))
        else:
            new.assign(unit if old is kernel.variable else old)
    return copy


def _output_axes(layer, kernel, rank):
    """The axes of the outputs that count units, in the gain's order."""
    if isinstance(layer, keras.layers.EinsumDense):
        letters, outputs = einsum_axes(layer)
        left, _, right = outputs.partition("...")
        return [
            left.index(letters[k])
            if letters[k] in left
            else rank - len(right) + right.index(letters[k])
            for k in kernel.units
        ]
    first = getattr(layer, "data_format", None) == "channels_first"
    return [1 if first else rank - 1]
