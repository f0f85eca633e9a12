"""A model cloned layer by layer, some of its layers as others.

`with_layer_norm`, `with_fast_rnn` and `to_keras` are clones of this kind.
"""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import keras

from keras_ln._keras import input_layer, is_graph, layers_within
from keras_ln.convert.weights import copy_weights_of
from keras_ln.layers.configs import config_of, from_config


class Clone:
    """One clone: how layers are made, and those that were made so far.

    A subclass says which layers become others, and refuses layers that it
    cannot clone.
    """

    # The public function, for messages.
    function: str
    # Classes that hold a cell as `keras.layers.RNN` does.
    around_cells: tuple[Any, ...] = (keras.layers.RNN,)

    def __init__(self) -> None:
        self._converted: dict[int, Any] = {}
        # With which layer each part is made again.
        self._made_with: dict[int, Any] = {}

    def replaces(self, layer: Any) -> bool:
        """Whether the layer, or the cell, becomes another."""
        raise NotImplementedError

    def replacement(self, layer: Any) -> Any:
        """The other one, without its weights."""
        raise NotImplementedError

    def class_around(self, layer: Any) -> Any:
        """The class of the layer for one of `around_cells`."""
        return type(layer)

    def check_other(self, layer: Any) -> None:
        """`ValueError` for a layer that cannot be replaced or cloned."""

    def run(self, model: Any, advice: str, copy_weights: bool = True) -> Any:
        """The clone, not compiled.

        Args:
            model: a functional or Sequential model.
            advice: the end of the error for any other object.
            copy_weights: whether weights and states are copied.

        Raises:
            ValueError: if the model is of another kind, or not built.
        """
        if not is_graph(model):
            why = (
                "takes functional and Sequential models: it cannot see how "
                "others call their layers"
            )
            raise self.refusal(model, why, f".{advice}")
        if copy_weights and not model.built:
            raise ValueError(
                f"{self.function} copies weights, and there are none yet. "
                f"Build the model first{self.without_weights}. Received: "
                f"{model.name!r}, which is not built."
            )
        with uncompiled(model):
            clone = self.convert(model)
        if copy_weights:
            copy_weights_of(model, clone)
        return clone

    # How to do without weights, if that is possible.
    without_weights = ""

    def refusal(self, layer: Any, why: str, more: str = ".") -> ValueError:
        """The error for a layer that the function does not take."""
        return ValueError(
            f"{self.function} {why}. Received: "
            f"{getattr(layer, 'name', layer)!r} of class "
            f"{type(layer).__name__}{more}"
        )

    def check_inside(self, layer: Any, found: list[Any]) -> None:
        """`ValueError` if layers to replace were found inside of a layer."""
        if found:
            why = "cannot replace layers inside of a layer of another class"
            more = f", with {found[0].name!r} inside."
            raise self.refusal(layer, why, more)

    def convert(self, layer: Any) -> Any:
        """The counterpart of a layer, a cell, a model or an operation."""
        if isinstance(layer, keras.Operation) and not isinstance(
            layer, keras.layers.Layer
        ):
            return layer  # It has no weights.
        if id(layer) not in self._converted:
            self._converted[id(layer)] = self._new(layer)
        return self._converted[id(layer)]

    def _new(self, layer):
        if is_graph(layer):
            return self._model(layer)
        if isinstance(layer, keras.layers.StackedRNNCells):
            return self._around(layer, {"cells": layer.cells})
        if type(layer) in self.around_cells:
            kind = self.class_around(layer)
            return self._around(layer, {"cell": layer.cell}, kind)
        if type(layer) is keras.layers.Lambda:
            function = {"function": layer.function}
            return from_config(layer, config_of(layer), function)
        bidirectional = isinstance(layer, keras.layers.Bidirectional)
        if isinstance(layer, keras.layers.Wrapper) and not bidirectional:
            return self._around(layer, {"layer": layer.layer})
        replaced = not bidirectional and self.replaces(layer)
        if not bidirectional and not replaced:
            self.check_other(layer)
        # The layers inside are made again with the layer.
        self._check_apart(layer)
        if bidirectional:
            return self._bidirectional(layer)
        if replaced:
            return self.replacement(layer)
        return from_config(layer, config_of(layer))

    def _model(self, model):
        inputs = None
        if not isinstance(model, keras.Sequential):
            # clone_model makes inputs that are not optional or sparse.
            inputs = keras.tree.map_structure(input_like, model.input)
        clone = keras.models.clone_model(
            model, inputs, clone_function=self.convert
        )
        if type(clone) is not type(model):
            raise self.refusal(
                model,
                "cannot make a model of a class of its own from layers",
                ". Give it the Sequential or functional model of these layers.",
            )
        if clone.trainable != model.trainable:
            clone.trainable = model.trainable
        return clone

    def _around(self, layer, parts, kind=None):
        """A new layer around its parts, by their names in its config."""
        new = {
            name: keras.tree.map_structure(self.convert, part)
            for name, part in parts.items()
        }
        return from_config(layer, config_of(layer), new, kind)

    def _bidirectional(self, layer):
        """Keras makes its layers again from the layers that it is given."""
        inside = copy.copy(self)
        inside._converted, inside._made_with = {}, {}
        parts = {
            "layer": inside.convert(layer.forward_layer),
            "backward_layer": inside.convert(layer.backward_layer),
        }
        return from_config(layer, config_of(layer), parts)

    def _check_apart(self, layer):
        """`ValueError` if a part with weights is in another layer too."""
        for part in layers_within(layer):
            other = self._made_with.setdefault(id(part), layer)
            if other is not layer and (part.weights or not part.built):
                raise ValueError(
                    f"{self.function} cannot keep {part.name!r} shared: it "
                    f"would make one for {other.name!r} and one for "
                    f"{layer.name!r}, which train apart. Give each a layer of "
                    "its own."
                )


def input_like(x: keras.KerasTensor) -> Any:
    """A symbolic input of the same kind."""
    layer = input_layer(x)
    # Keras 3.8 does not have it in the config.
    config = {**layer.get_config(), "optional": layer.optional}
    return keras.layers.InputLayer(**config).output


@contextlib.contextmanager
def uncompiled(model: Any) -> Iterator[None]:
    """Hides from clone_model that models are compiled."""
    compiled = [
        part
        for part in layers_within(model)
        if isinstance(part, keras.Model) and part.compiled
    ]
    for part in compiled:
        part.compiled = False
    try:
        yield
    finally:
        for part in compiled:
            part.compiled = True
