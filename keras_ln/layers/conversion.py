"""A model with layer-normalised recurrent layers in place of Keras' own."""

from typing import Any

import keras
import numpy as np

from keras_ln._keras import is_functional, layers_within
from keras_ln.layers.conversion_weights import copy_weights_of
from keras_ln.layers.own_arguments import check_sites
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.rnn.ln_gru import LNGRU, LNGRUCell
from keras_ln.layers.rnn.ln_gru import SITES as GRU_SITES
from keras_ln.layers.rnn.ln_lstm import LNLSTM, LNLSTMCell
from keras_ln.layers.rnn.ln_simple_rnn import LNSimpleRNN, LNSimpleRNNCell
from keras_ln.layers.types import Sites
from keras_ln.ops.cells.lstm import SITES

_OURS: dict[Any, Any] = {
    keras.layers.LSTM: LNLSTM,
    keras.layers.LSTMCell: LNLSTMCell,
    keras.layers.GRU: LNGRU,
    keras.layers.GRUCell: LNGRUCell,
    keras.layers.SimpleRNN: LNSimpleRNN,
    keras.layers.SimpleRNNCell: LNSimpleRNNCell,
}
_REPLACED: tuple[Any, ...] = (*_OURS,)
_GRUS = (keras.layers.GRU, keras.layers.GRUCell)
_SIMPLE = (keras.layers.SimpleRNN, keras.layers.SimpleRNNCell)


def with_layer_norm(
    model: Any, normalize: Sites | None = None, copy_weights: bool = True
) -> Any:
    """A clone of the model in which the recurrent layers are layer-normalised.

    `keras.layers.LSTM`, `GRU` and `SimpleRNN` become `LNLSTM`, `LNGRU` and
    `LNSimpleRNN`, and their cells ours: in Bidirectional, RNN,
    StackedRNNCells, TimeDistributed and models inside the model too. All
    other layers are cloned. Names, states, masks and shared
    layers are preserved. The model itself does not change.

    With `normalize=()` the clone predicts what the model predicts, and can
    serve as a starting point or a baseline. `SimpleRNN`, which has no sites to
    leave out, is then cloned unchanged. With sites the clone computes another
    function, whose training starts from the copied weights.

    Args:
        model: a functional or Sequential model.
        normalize: the sites to normalise, any of "kernel", "recurrent" and
            "state". A layer takes those that it has: LNGRU has no "state", and
            LNSimpleRNN normalises the sum of both products if "kernel" or
            "recurrent" is given. None stands for all.
        copy_weights: whether weights and states are copied, also the kernels
            and biases of the layers that are replaced. An update gate of 1
            takes the candidate in LNGRU and keeps h in Keras, so that the signs
            of its columns change. Gains and shifts start at their initial
            values.

    Returns:
        The new model. Compile it before you train it.

    Raises:
        ValueError: if `model` is neither functional nor Sequential or, with
            `copy_weights`, has no weights yet; for other sites; for what has
            no counterpart: classes derived from Keras' recurrent ones, cells
            of another kind, layers that have such layers inside, and GRU with
            `reset_after=False` or with an activation of its gates for which
            f(-z) is not 1 - f(z); for a layer that cannot be cloned.

    >>> import keras
    >>> import keras_ln
    >>> model = keras.Sequential(
    ...     [keras.Input((None, 3)), keras.layers.LSTM(4)]
    ... )
    >>> clone = keras_ln.with_layer_norm(model)
    >>> type(clone.layers[0]).__name__
    'LNLSTM'
    """
    if normalize is not None:
        normalize = check_sites(normalize, SITES)
    if not _is_cloneable(model):
        raise ValueError(
            "with_layer_norm takes functional and Sequential models: it cannot "
            "see how others call their layers. Received: "
            f"{getattr(model, 'name', model)!r} of class "
            f"{type(model).__name__}."
        )
    if copy_weights and not model.built:
        raise ValueError(
            "with_layer_norm copies weights, and there are none yet. Build "
            "the model first, or give copy_weights=False. Received: "
            f"{model.name!r}, which is not built."
        )
    conversion = _Conversion(normalize, copy_weights)
    clone = conversion.convert(model)
    if copy_weights:
        for old, new in conversion.pairs:
            copy_weights_of(old, new)
    return clone


class _Conversion:
    """One conversion: what it is asked for, and what it has converted."""

    def __init__(self, normalize: Any, copy_weights: bool) -> None:
        self._normalize = normalize
        self._copy_weights = copy_weights
        self._converted: dict[int, Any] = {}
        # What was converted and is no model: what has weights to copy.
        self.pairs: list[tuple[Any, Any]] = []

    def convert(self, layer: Any) -> Any:
        """What stands for a layer, a cell, a model or an operation."""
        if isinstance(layer, keras.Operation) and not isinstance(
            layer, keras.layers.Layer
        ):
            return layer  # It has no weights.
        if id(layer) not in self._converted:
            new = self._new(layer)
            self._converted[id(layer)] = new
            if not _is_cloneable(layer):
                self.pairs.append((layer, new))
        return self._converted[id(layer)]

    def _new(self, layer):
        if _is_cloneable(layer):
            return self._model(layer)
        if type(layer) in _OURS:
            return self._recurrent(layer)
        if isinstance(layer, keras.layers.Bidirectional):
            parts = {
                "layer": layer.forward_layer,
                "backward_layer": layer.backward_layer,
            }
            return self._around(layer, parts)
        if isinstance(layer, keras.layers.Wrapper):
            return self._around(layer, {"layer": layer.layer})
        if type(layer) is keras.layers.RNN:
            return self._around(layer, {"cell": layer.cell})
        if isinstance(layer, keras.layers.StackedRNNCells):
            return self._around(layer, {"cells": layer.cells})
        self._check_other(layer)
        return _from_config(layer, _config(layer))

    def _model(self, model):
        clone = keras.models.clone_model(model, clone_function=self.convert)
        if type(clone) is not type(model):
            raise ValueError(
                "with_layer_norm cannot make a model of a class of its own "
                f"from layers. Received: {model.name!r} of class "
                f"{type(model).__name__}. Give it the Sequential or "
                "functional model of these layers."
            )
        return clone

    def _recurrent(self, layer):
        """Ours for Keras' LSTM, GRU or SimpleRNN, or for its cell."""
        config = _config(layer)
        asked = self._normalize
        if isinstance(layer, _SIMPLE):
            if asked is not None and not {"kernel", "recurrent"} & {*asked}:
                return _from_config(layer, config)
        elif isinstance(layer, _GRUS):
            self._check_gru(layer)
            if asked is not None:
                config["normalize"] = [s for s in asked if s in GRU_SITES]
        elif asked is not None:
            config["normalize"] = asked
        return _OURS[type(layer)].from_config(config)

    def _check_gru(self, layer):
        if not layer.reset_after:
            raise ValueError(
                "with_layer_norm needs reset_after=True: LNGRU normalises the "
                "product with the recurrent kernel, and resets after it. "
                f"Received: {layer.name!r} with reset_after=False."
            )
        z = keras.ops.linspace(-4.0, 4.0, 9)
        gate = layer.recurrent_activation
        sums = keras.ops.convert_to_numpy(gate(z) + gate(-z))
        if self._copy_weights and not np.allclose(sums, 1, atol=1e-5):
            raise ValueError(
                "with_layer_norm copies the update gate with its sign "
                "changed, which needs f(-z) = 1 - f(z) as for sigmoid. "
                f"Received: {layer.name!r} with recurrent_activation="
                f"{getattr(gate, '__name__', gate)!r}; give "
                "copy_weights=False."
            )

    def _around(self, layer, parts):
        """The layer anew around its parts, by their names in its config."""
        config = _config(layer)
        # Keras makes them again from their configs, so that their weights are
        # copied later, with those of the layer.
        inside = _Conversion(self._normalize, self._copy_weights)
        for name, part in parts.items():
            new = keras.tree.map_structure(inside.convert, part)
            config[name] = keras.saving.serialize_keras_object(new)
        return _from_config(layer, config)

    def _check_other(self, layer: Any) -> None:
        """`ValueError` for what is recurrent and has no counterpart."""
        kind = type(layer).__name__
        if isinstance(layer, _REPLACED):
            raise ValueError(
                "with_layer_norm cannot tell what a class derived from "
                "Keras' recurrent layers computes. Received: "
                f"{layer.name!r} of class {kind}."
            )
        known = isinstance(layer, BaseCell | keras.layers.RNN)
        if hasattr(layer, "state_size") and not known:
            raise ValueError(
                "with_layer_norm knows the cells of LSTM, GRU and SimpleRNN, "
                f"and those of keras_ln. Received: {layer.name!r} of class "
                f"{kind}."
            )
        inside = [p for p in layers_within(layer) if isinstance(p, _REPLACED)]
        if inside:
            raise ValueError(
                "with_layer_norm cannot replace what a layer of another "
                f"class holds. Received: {layer.name!r} of class {kind}, with "
                f"{inside[0].name!r} inside."
            )


def _is_cloneable(layer):
    """Whether it is a model whose layers and their calls are known."""
    return isinstance(layer, keras.Sequential) or is_functional(layer)


def _config(layer):
    return _cloning(layer, lambda: layer.get_config())


def _from_config(layer, config):
    # Here it is the user's own function, not one from a file.
    trusted = {"safe_mode": False} if type(layer) is keras.layers.Lambda else {}
    classes = {type(part).__name__: type(part) for part in layers_within(layer)}
    with keras.saving.custom_object_scope(classes):
        return _cloning(
            layer, lambda: type(layer).from_config(config, **trusted)
        )


def _cloning(layer, step):
    """What the step gives; `ValueError` that names the layer if it fails."""
    try:
        return step()
    # Constructors of any class run here, and may raise anything.
    except Exception as error:
        raise ValueError(
            f"with_layer_norm cannot clone the layer {layer.name!r} of class "
            f"{type(layer).__name__}, which its get_config and from_config do "
            "not make again."
        ) from error
