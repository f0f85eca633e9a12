"""What all layers and cells share: they take what Keras' layers take."""

import sys
from typing import Any

import keras

from keras_ln.layers.constructor_arguments import accept, serialize
from keras_ln.layers.refused_arguments import refuse, refuse_misspelled
from keras_ln.ops import arguments
from keras_ln.ops.symbolic import refuse_tf_keras


class BaseLayer(keras.layers.Layer):
    """A layer whose errors name arguments that it does not have."""

    _argument_names: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Hands the arguments to the Keras layer behind this class."""
        refuse(type(self).__name__, kwargs)
        refuse_misspelled(type(self), kwargs)
        super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `TypeError` for tensors of tf_keras."""
        if "tf_keras" in sys.modules:
            refuse_tf_keras(type(self).__name__, (args, kwargs))
        return super().__call__(*args, **kwargs)

    def keep_arguments(self, named: dict[str, Any]) -> None:
        """Keeps the constructor's named arguments, as they are checked."""
        self._argument_names = tuple(named)
        for name, value in named.items():
            setattr(self, name, accept(name, value))

    def arguments_config(self) -> dict[str, Any]:
        """The arguments that are kept, serialised."""
        return {
            name: serialize(name, getattr(self, name))
            for name in self._argument_names
        }

    def get_config(self) -> dict[str, Any]:
        """Every argument of the constructor."""
        return {**super().get_config(), **self.arguments_config()}

    def as_floating(self, name: str, tensor: Any) -> Any:
        """The tensor; integers are cast to the compute dtype.

        Args:
            name: name of the argument, for the message.
            tensor: the tensor that was received.

        Raises:
            ValueError: if it holds neither whole nor floating-point numbers.
        """
        dtype = arguments.check_floating(name, tensor.dtype, or_whole=True)
        if keras.backend.is_float_dtype(dtype):
            return tensor
        return keras.ops.cast(tensor, self.compute_dtype)
