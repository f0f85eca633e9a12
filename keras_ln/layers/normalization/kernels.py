"""The kernels of a Keras layer, and the axes that count their units.

The part of a kernel that belongs to one unit is called the unit's column.
"""

from collections.abc import Iterator
from typing import NamedTuple

import keras

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
