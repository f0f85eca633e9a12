"""The base class of all layers and cells, with Keras' arguments."""

import sys
from typing import Any

import keras

from keras_ln._keras import placed, uncast
from keras_ln.engine import arguments
from keras_ln.engine.dtypes import at_least_float32
from keras_ln.layers.constructor_arguments import refuse
from keras_ln.ops.argument_table import accept, serialize
from keras_ln.ops.norms.weight_normalization import column_norms
from keras_ln.ops.symbolic import refuse_tf_keras


class BaseLayer(keras.layers.Layer):
    """A layer that refuses unknown arguments by name."""

    _argument_names: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(type(self), kwargs)
        super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; `TypeError` for tensors of tf_keras."""
        if "tf_keras" in sys.modules:
            refuse_tf_keras(type(self).__name__, (args, kwargs))
        return super().__call__(*args, **kwargs)

    def keep_arguments(self, named: dict[str, Any]) -> None:
        """Checks the constructor's named arguments and keeps them."""
        self._argument_names = tuple(named)
        for name, value in named.items():
            setattr(self, name, accept(name, value))

    def get_config(self) -> dict[str, Any]:
        """Every argument of the constructor."""
        kept = {
            name: serialize(name, getattr(self, name))
            for name in self._argument_names
        }
        return {**super().get_config(), **kept}

    def add_weight(
        self, *args: Any, initializer: Any = None, **kwargs: Any
    ) -> Any:
        """Creates a weight of any dtype.

        The initial value is drawn in at least float32, and then cast: Keras'
        Orthogonal supports no half precision on JAX and torch, and no bfloat16
        on TensorFlow (3.15).
        """
        if initializer is None:
            return super().add_weight(*args, **kwargs)
        initializer = keras.initializers.get(initializer)

        def draw(shape: Any, dtype: Any, **options: Any) -> Any:
            wide = initializer(shape, dtype=at_least_float32(dtype), **options)
            return keras.ops.cast(wide, dtype)

        return super().add_weight(*args, initializer=draw, **kwargs)

    def add_as_asked(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: str = "",
        initializer: Any = None,
        autocast: bool = False,
    ) -> None:
        """Creates the weight `name` with the constructor's options for it.

        The kind, by default the end of the name, such as `gamma`, selects the
        regularizer, the constraint and, unless one is given, the initializer.
        In mixed precision the weight stays float32, unless `autocast` casts it.
        """
        kind = kind or name.rpartition("_")[2]
        if initializer is None:
            initializer = getattr(self, f"{kind}_initializer")
        weight = self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=getattr(self, f"{kind}_regularizer"),
            constraint=getattr(self, f"{kind}_constraint"),
            autocast=autocast,
        )
        setattr(self, name, weight)

    def add_gains(
        self, name: str, kernel: Any, columns: tuple[int, ...] = (0,)
    ) -> Any:
        """Creates the gains of a kernel, initially the norms of its columns.

        A column runs over the axes `columns`.
        """

        # An initializer, not an assignment: Keras may delay the initial values
        # of the kernel and the gains until the build is over.
        def norms(shape: Any, dtype: Any) -> Any:
            return keras.ops.cast(column_norms(uncast(kernel), columns), dtype)

        sizes = [n for k, n in enumerate(kernel.shape) if k not in columns]
        return self.add_weight(
            name=name, shape=sizes, initializer=norms, autocast=False
        )

    def add_moving_statistics(
        self, names: tuple[str, str], shape: tuple[int, ...]
    ) -> None:
        """Creates a moving mean and a moving variance of these names."""
        for name, value in zip(names, ("zeros", "ones"), strict=True):
            weight = self.add_weight(
                name=name,
                shape=shape,
                initializer=value,
                trainable=False,
                autocast=False,
            )
            setattr(self, name, weight)

    def check_built(self, method: str) -> None:
        """`ValueError` if there are no weights yet."""
        if not self.built:
            raise ValueError(
                f"`{method}` needs weights. Call the layer, or its build "
                "method, first."
            )

    def as_floating(self, name: str, tensor: Any) -> Any:
        """The argument as a dense tensor; integers get the compute dtype."""
        arguments.check_dense(name, tensor)
        tensor = placed(tensor)
        dtype = arguments.check_floating(name, tensor.dtype, or_whole=True)
        if keras.backend.is_float_dtype(dtype):
            return tensor
        return keras.ops.cast(tensor, self.compute_dtype)
