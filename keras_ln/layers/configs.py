"""Layers made again from their configs and live objects."""

import types
from collections.abc import Callable
from typing import Any

import keras

from keras_ln._keras import layers_within
from keras_ln.layers.constructor_arguments import argument_names

_FUNCTIONS = {"activation", "recurrent_activation"}


def config_of(layer: Any) -> dict[str, Any]:
    """The layer's config; `ValueError` if it gives none."""
    config = cloning(layer, layer.get_config)
    if _is_of_keras(type(layer)):
        for name in _FUNCTIONS & {*config}:
            # A config holds no function that is not registered, and Keras'
            # layers take the function itself. A layer would be shared.
            function = getattr(layer, name)
            if not isinstance(function, keras.layers.Layer):
                config[name] = function
    if isinstance(layer, keras.layers.LSTM | keras.layers.GRU) and (
        "use_cudnn" in argument_names(type(layer))
    ):
        # Keras leaves it out.
        config["use_cudnn"] = layer.use_cudnn
    return config


def from_config(
    layer: Any,
    config: dict[str, Any],
    parts: dict[str, Any] | None = None,
    kind: Any = None,
) -> Any:
    """A layer of the same class; `ValueError` if the config gives none.

    Args:
        layer: the layer to make again.
        config: its config.
        parts: objects, or lists of objects, that replace entries of the
            config unchanged.
        kind: another class that takes the config.
    """
    scope = _own_classes(layer)

    def ready(part):
        name = f"part {len(scope)}"
        # It poses as a class, and returns the finished part.
        scope[name] = types.SimpleNamespace(from_config=lambda config: part)
        return {"class_name": name, "registered_name": name, "config": {}}

    entries = {
        name: keras.tree.map_structure(ready, part)
        for name, part in (parts or {}).items()
    }
    # The function is the user's own, not one from a file.
    trusted = {"safe_mode": False} if type(layer) is keras.layers.Lambda else {}

    def make():
        made = {**config, **entries}
        if _is_of_keras(type(layer)):
            for name in _FUNCTIONS & {*made}:
                if isinstance(made[name], dict):
                    # A layer, which no activation of Keras 3.8 makes again.
                    made[name] = keras.saving.deserialize_keras_object(
                        made[name]
                    )
        return (kind or type(layer)).from_config(made, **trusted)

    with keras.saving.custom_object_scope(scope):
        return cloning(layer, make)


def cloning(layer: Any, step: Callable[[], Any]) -> Any:
    """The step's result; `ValueError` that names the layer if it fails."""
    try:
        return step()
    # Constructors of any class run here, and may raise anything.
    except Exception as error:
        raise ValueError(
            f"keras_ln cannot clone the layer {layer.name!r} of class "
            f"{type(layer).__name__}: its get_config and from_config do not "
            "make it again. Register your own classes and functions in it "
            "with keras.saving.register_keras_serializable."
        ) from error


def _own_classes(layer: Any) -> dict[str, Any]:
    """The classes in a layer that Keras does not know, by name.

    A config holds only the name of such a class.
    """
    found: dict[str, Any] = {}
    for part in layers_within(layer):
        kind = type(part)
        name = keras.saving.get_registered_name(kind)
        if _is_of_keras(kind) or name != kind.__name__:
            continue
        if found.setdefault(name, kind) is not kind:
            raise ValueError(
                f"keras_ln cannot tell two classes {name!r} apart in "
                "a config. Rename one, or register both with "
                "keras.saving.register_keras_serializable. Received: "
                f"{layer.name!r} with both inside."
            )
    return found


def _is_of_keras(kind):
    return kind.__module__.startswith("keras.")
