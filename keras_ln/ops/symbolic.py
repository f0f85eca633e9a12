"""Ops for Keras' symbolic tensors; tf_keras' tensors are refused."""

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import keras

from keras_ln.engine import arguments
from keras_ln.engine.arguments import leaves

_P = ParamSpec("_P")
_R = TypeVar("_R")


def takes_symbolic_tensors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes a function of `keras_ln.ops` usable in functional models.

    Like the functions of `keras.ops`, it returns symbolic tensors for a
    `keras.KerasTensor`, and runs when the model runs.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        values = leaves((args, kwargs))
        refuse_tf_keras(f"keras_ln.ops.{function.__name__}", values)
        if any(_is_symbolic(value) for value in values):
            return FunctionCall(function.__name__)(*args, **kwargs)
        return function(*args, **kwargs)

    return call


@keras.saving.register_keras_serializable(package="keras_ln")
class FunctionCall(keras.Operation):
    """A call of a function of `keras_ln.ops` in a functional model."""

    def __init__(self, function: str, name: str | None = None) -> None:
        super().__init__(name=name)
        ops = importlib.import_module("keras_ln.ops")
        # The name may come from a file.
        if function not in ops.__all__:
            raise arguments.wrong(
                "function", f"one of {', '.join(ops.__all__)}", function
            )
        self.function = function
        self._run = getattr(ops, function)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results for tensors."""
        return self._run(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of the function's results."""
        values = keras.tree.flatten((args, kwargs))

        def run(*tensors: Any) -> Any:
            given = iter(tensors)
            positional, named = keras.tree.pack_sequence_as(
                (args, kwargs),
                [next(given) if _is_symbolic(v) else v for v in values],
            )
            return self.call(*positional, **named)

        # On JAX Keras turns everything nested into a tensor, even axis=(1, 2).
        traced = keras.Operation()
        traced.call = run
        return traced.compute_output_spec(*filter(_is_symbolic, values))


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, keras.KerasTensor)


def refuse_tf_keras(owner: str, values: Any) -> None:
    """`TypeError` if one of the nested `values` belongs to tf_keras.

    tf_keras, which is Keras 2, need not be installed.
    """
    if "tf_keras" not in sys.modules:
        return
    for value in leaves(values):
        if type(value).__module__.partition(".")[0] == "tf_keras":
            raise TypeError(
                f"{owner} is made for Keras 3 and takes no objects of "
                "tf_keras, which is Keras 2. Build the model with `keras`. "
                "Received: "
                f"{value!r}"
            )
