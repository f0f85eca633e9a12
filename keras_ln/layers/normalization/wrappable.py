"""Checks of the layers that WeightNormalization wraps."""

from typing import Any

import keras

from keras_ln._keras import is_rematerialized
from keras_ln.layers.normalization.kernels import (
    kernels_of,
    needs_plain_kernel,
    owners,
)
from keras_ln.layers.normalization.weight_norm_dense import WeightNormDense
from keras_ln.layers.rnn.wn_lstm import WNLSTMCell

# The methods that replace a kernel.
_REPLACING = ("quantize", "enable_lora")
# Layers whose kernels have gains already.
_NORMALIZED = (
    WeightNormDense,
    WNLSTMCell,
    keras.layers.SpectralNormalization,
)


def check_can_be_wrapped(layer: Any, wrapper: type) -> None:
    """`ValueError` unless the layer has kernels of its own to normalise.

    Args:
        layer: the layer to wrap.
        wrapper: the wrapping class, which must not wrap itself.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(
            "Argument `layer` must be a layer of Keras 3. Received: "
            f"layer={layer!r}"
        )
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
