"""What a data-dependent initialisation checks and computes."""

import math
from typing import Any

import keras
import numpy as np

from keras_ln.layers.normalization.kernels import Kernel, einsum_axes
from keras_ln.ops.normalization.weight_normalization import (
    column_norms,
    normalized_kernel,
    standardizing_gain_and_shift,
)


def check_scale(scale: float) -> None:
    """`ValueError` unless the standard deviation is one."""
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(
            "Argument `scale` must be a finite number > 0. "
            f"Received: scale={scale!r}"
        )


def refuse_units(wrong: np.ndarray, reason: str) -> None:
    """`ValueError` that names the units where `wrong`, if there are any."""
    if wrong.any():
        raise ValueError(
            f"`initialize_from_data` cannot set the units "
            f"{np.flatnonzero(wrong).tolist()}: {reason}."
        )


ZERO_COLUMN = "the kernel column is zero, which has no direction"
CONSTANT = "the pre-activations are constant, or not finite, over `x`"


def standardizing_arrays(
    layer: keras.layers.Layer, kernel: Kernel, x: Any, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The gain and the bias, for pre-activations of mean 0 and this deviation.

    Args:
        layer: the layer with the one kernel, and a bias; built.
        kernel: the kernel.
        x: a tensor of inputs.
        scale: the standard deviation.

    Raises:
        ValueError: for units that cannot be set.
    """
    norms = column_norms(kernel.variable, kernel.columns)
    refuse_units(keras.ops.convert_to_numpy(norms) == 0, ZERO_COLUMN)
    t = _directions(layer, kernel)(x)
    # The units last, and all else before them in one axis.
    axes = _output_axes(layer, kernel, len(t.shape))
    others = [axis for axis in range(len(t.shape)) if axis not in axes]
    t = keras.ops.transpose(t, [*others, *axes])
    t = keras.ops.reshape(t, (-1, *kernel.gain_shape))
    g, bias = (
        keras.ops.convert_to_numpy(w)
        for w in standardizing_gain_and_shift(t, (0,), scale)
    )
    refuse_units(~(np.isfinite(g) & np.isfinite(bias)), CONSTANT)
    # In the order of the outputs, as a bias is.
    bias = bias.transpose(np.argsort(axes)) if len(axes) > 1 else bias
    return g, bias.reshape(layer.bias.shape)


def _directions(layer, kernel):
    """A copy of the layer that gives the products with v / ||v||."""
    changes = {
        "activation": "linear",
        "activity_regularizer": None,
        "dtype": layer.variable_dtype,
    }
    config = layer.get_config()
    config |= {n: value for n, value in changes.items() if n in config}
    copy = type(layer).from_config(config)
    copy.build_from_config(layer.get_build_config())
    unit = normalized_kernel(
        kernel.variable,
        keras.ops.ones(kernel.gain_shape, kernel.variable.dtype),
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
