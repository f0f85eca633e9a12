"""Weights of a layer, copied into its counterpart in a clone.

`compat/` loads weights of other libraries.

Letters: D input features, U units.
"""

import copy
import tempfile
from typing import Any

import keras
import numpy as np

from keras_ln._keras import layers_in, own_variables
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN

_LOOKUPS = (
    keras.layers.IntegerLookup,
    keras.layers.StringLookup,
    keras.layers.TextVectorization,
)


def copy_weights_of(old: Any, new: Any) -> None:
    """Copies weights, what is set on them, and states to the counterpart."""
    # First, because it sets the flag of every weight inside.
    if new.trainable != old.trainable:
        new.trainable = old.trainable
    if isinstance(new, BaseCell) != isinstance(old, BaseCell):
        _copy_cell(old, new)
    elif isinstance(new, BaseRNN) != isinstance(old, BaseRNN):
        copy_weights_of(old.cell, new.cell)
    else:
        _copy_own(old, new)
        parts = zip(layers_in(old), layers_in(new), strict=True)
        for old_part, new_part in parts:
            copy_weights_of(old_part, new_part)
    if isinstance(old, keras.layers.RNN) and old.states is not None:
        states = map(keras.tree.flatten, (old.states, new.states))
        for old_state, new_state in zip(*states, strict=True):
            new_state.assign(keras.ops.convert_to_numpy(old_state))


def _copy_own(old, new):
    """Copies own weights and assets as a file would, and LoRA as it is."""
    pairs = _pairs(old, new)
    _copy_settings(pairs)
    if getattr(old, "lora_enabled", False):
        # A file would hold the product added to the kernel.
        for old_weight, new_weight in pairs:
            new_weight.assign(keras.ops.convert_to_numpy(old_weight))
        # Dense and Embedding of Keras 3.15 take the rank when they are built;
        # Keras 3.8 has no such factor.
        if hasattr(old, "lora_alpha"):
            new.lora_alpha = old.lora_alpha
        return
    store: dict[str, Any] = {}
    old.save_own_variables(store)
    if store:
        # Not the tensors themselves: `fit` on JAX gives its own away.
        new.load_own_variables(
            {n: keras.ops.convert_to_numpy(v) for n, v in store.items()}
        )
    if _has_assets(old):
        with tempfile.TemporaryDirectory() as folder:
            old.save_assets(folder)
            new.load_assets(folder)


def _pairs(old, new):
    """The own weights of two layers of a class: by name, or else in order.

    A layer that was quantised has them in another order than a new one.
    """
    both = [own_variables(layer) for layer in (old, new)]
    named = [sorted(weights, key=lambda w: w.name) for weights in both]
    names = [[weight.name for weight in weights] for weights in named]
    if len(names[0]) != len(names[1]):
        return []
    return [*zip(*(named if names[0] == names[1] else both), strict=True)]


def _has_assets(layer):
    """Whether a layer has more than weights to copy, such as a vocabulary."""
    if isinstance(layer, _LOOKUPS):
        # Keras loads no empty ones.
        return bool(layer.get_vocabulary(include_special_tokens=False))
    return hasattr(layer, "save_assets")


def _copy_cell(old, new):
    """Copies kernels and biases of a cell of Keras to its twin, or back."""
    names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
    arrays = {
        name: keras.ops.convert_to_numpy(getattr(old, name))
        for name in names
        if getattr(old, name, None) is not None
    }
    if isinstance(old, keras.layers.GRUCell):
        arrays = _of_gru(arrays, new)
    elif isinstance(new, keras.layers.GRUCell):
        arrays = _to_gru(arrays, old)
    pairs = []
    for name, array in arrays.items():
        getattr(new, name).assign(array)
        # The recurrent half of a GRU's bias has no name in Keras.
        source = getattr(old, name, None)
        source = old.bias if source is None else source
        pairs.append((source, getattr(new, name)))
    _copy_settings(pairs)


def _copy_settings(pairs):
    """Sets on the second of two weights what is set on the first."""
    # A change of one model's objects does not change the other model; weights
    # that share an object still do.
    copies: dict[int, Any] = {}
    for old, new in pairs:
        new.trainable = old.trainable
        for name in ("regularizer", "constraint"):
            value = getattr(old, name)
            value = copies.setdefault(id(value), copy.copy(value))
            setattr(new, name, value)


def _of_gru(arrays, new):
    """The weights of Keras' GRUCell by our names, with z for 1 - z."""
    signs = np.repeat([-1.0, 1.0, 1.0], new.units)
    arrays = {name: array * signs for name, array in arrays.items()}
    if "bias" in arrays:
        # One for each product. The product inside the reset gate has a bias
        # unless a beta does the same.
        arrays["bias"], recurrent = arrays["bias"]
        own = new.recurrent_bias is not None
        if "sum" in new.normalize:
            arrays["bias"] = arrays["bias"] + recurrent
        else:
            arrays["recurrent_bias" if own else "recurrent_beta"] = recurrent
    return arrays


def _to_gru(arrays, old):
    """The weights of our cell by the names of Keras' GRUCell."""
    signs = np.repeat([-1.0, 1.0, 1.0], old.units)
    arrays = {name: array * signs for name, array in arrays.items()}
    if "bias" in arrays:
        both = arrays["bias"], arrays.pop("recurrent_bias")
        arrays["bias"] = np.stack(both)
    return arrays


def is_mirrored(gate: Any) -> bool:
    """Whether f(-z) is 1 - f(z), as of sigmoid."""
    z = keras.ops.linspace(-4.0, 4.0, 9)
    sums = keras.ops.convert_to_numpy(gate(z) + gate(-z))
    return bool(np.allclose(sums, 1, atol=1e-5))


def constraint_on_signs(cell: Any) -> str | None:
    """The argument of a GRU's cell with a constraint f and f(-w) != -f(w)."""
    for kind in ("kernel", "recurrent", "bias"):
        name = "recurrent_kernel" if kind == "recurrent" else kind
        weight: Any = getattr(cell, name, None)
        # It may have been set on the weight.
        constraint = getattr(weight, "constraint", None)
        if constraint is None:
            continue
        w = keras.random.normal(weight.shape, dtype="float32", seed=1)
        sums = keras.ops.convert_to_numpy(constraint(w) + constraint(-w))
        if not np.allclose(sums, 0, atol=1e-5):
            return f"{kind}_constraint={constraint!r}"
    return None
