"""The checks and computations of a data-dependent initialisation."""

import math
from typing import Any

import keras
import numpy as np

from keras_ln.engine import dtypes
from keras_ln.layers.normalization.kernels import (
    Kernel,
    einsum_axes,
    kernels_of,
)
from keras_ln.ops.norms.weight_normalization import (
    column_norms,
    normalized_kernel,
    standardizing_gain_and_shift,
)


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
