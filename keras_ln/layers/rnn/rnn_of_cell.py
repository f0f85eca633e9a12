"""The constructor arguments of sequence layers, and their config."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import keras

from keras_ln.layers.base_layer import BaseLayer
from keras_ln.layers.constructor_arguments import argument_names, of_keras
from keras_ln.layers.rnn.base_cell import BaseCell
from keras_ln.layers.types import Switch
from keras_ln.ops import arguments

if TYPE_CHECKING:  # In typing since Python 3.11.
    from typing_extensions import Self

# Arguments that `keras.layers.RNN` takes; the cell takes the others.
_OF_LAYER = (
    "activity_regularizer",
    "return_sequences",
    "return_state",
    "go_backwards",
    "stateful",
    "unroll",
)


class RNNOfCell(BaseLayer, keras.layers.RNN):
    """A layer of Keras over a cell that it makes of its arguments."""

    cell_class: type[BaseCell]
    # Fixed because it is part of the weights' paths, which must be the same in
    # equal models.
    cell_name: str
    state_size: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Shows the arguments of its cell in the layer too."""
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "cell_class"):
            return
        for name in argument_names(cls.cell_class):
            if name != "kwargs" and not hasattr(cls, name):
                of_cell = operator.attrgetter(f"cell.{name}")
                shown = property(of_cell, doc=f"The cell's `{name}`.")
                setattr(cls, name, shown)

    def __init__(self, named: dict[str, Any], **kwargs: Any) -> None:
        """Makes the cell from the named arguments of the layer's `__init__`.

        The rest of them, and `kwargs`, are for `keras.layers.RNN`.
        """
        kwargs = of_keras(kwargs)
        named = dict(named)
        names = tuple(named)
        switches = {
            name: arguments.check_switch(name, named.pop(name))
            for name in ("use_fused", "use_cudnn")
            if name in named
        }
        of_layer = {
            name: named.pop(name) for name in names if name in _OF_LAYER
        }
        shared = {n: kwargs[n] for n in ("dtype", "trainable") if n in kwargs}
        cell = self.cell_class(**named, **shared, name=self.cell_name)
        super().__init__(cell, **of_layer, **kwargs)
        # The loop counts the steps: a cell's counter is no state here.
        self.state_size = self.state_size[: cell.equations.states]
        self._argument_names = names
        for name, switch in switches.items():
            setattr(self, name, switch)
        self.input_spec = keras.layers.InputSpec(ndim=3, name="sequences")
        # In builds of Keras 3.16 the layers that it has no longer do.
        self.supports_masking = True

    @property
    def use_fused(self) -> Switch:
        """Whether to run one op per sequence: "auto", True or False."""
        return self._use_fused

    @use_fused.setter
    def use_fused(self, use_fused: Switch) -> None:
        self._use_fused = arguments.check_switch("use_fused", use_fused)

    def get_config(self) -> dict[str, Any]:
        """Every argument of the constructor."""
        config = super().get_config()
        del config["cell"]
        return config

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> Self:
        """A layer from its config, or from the config of Keras' own layer."""
        with keras.saving.custom_object_scope(custom_objects or {}):
            return cls(**config)
