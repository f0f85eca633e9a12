"""Weights of Keras' recurrent layers, copied into ours.

Letters: D input features, U units.
"""

from typing import Any

import keras
import numpy as np

from keras_ln._keras import layers_within
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.base_rnn import BaseRNN


def copy_weights_of(old: Any, new: Any) -> None:
    """Copies weights and states of a layer to what it was converted to."""
    if isinstance(new, BaseCell) and not isinstance(old, BaseCell):
        _copy_cell(old, new)
    elif isinstance(new, BaseRNN) and not isinstance(old, BaseRNN):
        _copy_cell(old.cell, new.cell)
    elif isinstance(old, keras.layers.Bidirectional):
        copy_weights_of(old.forward_layer, new.forward_layer)
        copy_weights_of(old.backward_layer, new.backward_layer)
    elif isinstance(old, keras.layers.Wrapper):
        _copy_own(old, new)
        copy_weights_of(old.layer, new.layer)
    elif type(old) is keras.layers.RNN:
        copy_weights_of(old.cell, new.cell)
    elif isinstance(old, keras.layers.StackedRNNCells):
        for old_cell, new_cell in zip(old.cells, new.cells, strict=True):
            copy_weights_of(old_cell, new_cell)
    elif isinstance(old, keras.Model) and hasattr(old, "layers"):
        for old_layer, new_layer in zip(old.layers, new.layers, strict=True):
            copy_weights_of(old_layer, new_layer)
    else:
        parts = zip(layers_within(old), layers_within(new), strict=True)
        for old_part, new_part in parts:
            _copy_own(old_part, new_part)
    if isinstance(old, keras.layers.RNN) and old.states is not None:
        states = map(keras.tree.flatten, (old.states, new.states))
        for old_state, new_state in zip(*states, strict=True):
            new_state.assign(keras.ops.convert_to_numpy(old_state))


def _copy_own(old, new):
    """Copies a layer's own weights as a file would, with what follows them."""
    store: dict[str, Any] = {}
    old.save_own_variables(store)
    if store:
        # Not the tensors themselves: `fit` on JAX gives its own away.
        new.load_own_variables(
            {n: keras.ops.convert_to_numpy(v) for n, v in store.items()}
        )


def _copy_cell(old, new):
    """Copies kernels and bias of a cell of Keras."""
    names = ("kernel", "recurrent_kernel", "bias")
    arrays = {
        name: keras.ops.convert_to_numpy(getattr(old, name))
        for name in names
        if getattr(old, name, None) is not None
    }
    if isinstance(old, keras.layers.GRUCell):
        arrays = _of_gru(arrays, new)
    for name, array in arrays.items():
        getattr(new, name).assign(array)


def _of_gru(arrays, new):
    """The weights of Keras' GRUCell by our names, with z for 1 - z."""
    signs = np.repeat([-1.0, 1.0, 1.0], new.units)
    arrays = {name: array * signs for name, array in arrays.items()}
    if "bias" in arrays:
        # One for each product. Inside the reset gate's there is a bias where
        # no beta does the same.
        arrays["bias"], recurrent = arrays["bias"]
        own = new.recurrent_bias is not None
        arrays["recurrent_bias" if own else "recurrent_beta"] = recurrent
    return arrays
