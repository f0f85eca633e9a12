"""What all layers and cells share: they take what Keras' layers take."""

from typing import Any

import keras

from keras_ln.layers.other_arguments import refuse
from keras_ln.ops import arguments
from keras_ln.ops.symbolic import refuse_tf_keras


class BaseLayer(keras.layers.Layer):
    """A layer whose errors name the arguments of other libraries."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Hands the arguments to the Keras layer behind this class."""
        refuse(type(self).__name__, kwargs)
        super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `TypeError` for tensors of tf_keras."""
        refuse_tf_keras(type(self).__name__, (args, kwargs))
        return super().__call__(*args, **kwargs)

    def as_floating(self, name: str, tensor: Any) -> Any:
        """The tensor, whole numbers cast to the compute dtype.

        Args:
            name: name of the argument, for the message.
            tensor: the tensor that was received.

        Raises:
            ValueError: if it holds neither whole nor floating-point numbers.
        """
        if is_whole(tensor.dtype):
            return keras.ops.cast(tensor, self.compute_dtype)
        arguments.check_floating(name, tensor.dtype)
        return tensor


def is_whole(dtype: Any) -> bool:
    """Whether numbers of this dtype are whole, `bool` included."""
    dtype = keras.backend.standardize_dtype(dtype)
    return keras.backend.is_int_dtype(dtype) or dtype == "bool"
