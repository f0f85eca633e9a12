"""Other values for the variables of a layer during a call."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_ln.engine.portable import current_trace


class Substitution(keras.StatelessScope):
    """A scope that changes the values of some variables and nothing else.

    A plain `StatelessScope` hides the scope around it, in which `fit` on JAX
    keeps the values of all variables, and holds back assignments and losses.
    This scope lets them through. Like every such scope it belongs to a thread,
    and ends with its block, after an error too.

    Keras' loops on JAX open a scope if there is none, so that values made in
    the loop stay in it. If this scope is the only one, it keeps these values.
    """

    def __init__(self, values: Mapping[int, Any]) -> None:
        """Takes the tensors that replace variables, by the variables' `id`."""
        super().__init__(collect_losses=True)
        self._values = dict(values)
        # (id, trace, value) of variables that a loop assigns.
        self._in_loops: list[tuple[int, Any, Any]] = []

    def __enter__(self) -> "Substitution":
        super().__enter__()
        self._trace = current_trace()
        if self.original_scope is not None:
            self.collect_losses = self.original_scope.collect_losses
            self.losses = self.original_scope.losses
        return self

    def get_current_value(self, variable: keras.Variable) -> Any:
        """The value inside, or None for the variable's own."""
        if id(variable) in self._values:
            return self._values[id(variable)]
        if self.original_scope is not None:
            return self.original_scope.get_current_value(variable)
        trace = current_trace() if self._in_loops else None
        for key, its_trace, value in reversed(self._in_loops):
            if key == id(variable) and its_trace == trace:
                return value
        return None

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Assigns outside of this scope, or in a loop that runs inside it."""
        variable, value = update
        trace = current_trace()
        if self.original_scope is None and trace != self._trace:
            self._in_loops.append((id(variable), trace, value))
            return
        self.__exit__()
        try:
            variable.assign(value)
        finally:
            self.__enter__()

    def losses_left(self) -> list[Any]:
        """The losses added inside, unless a scope around this one has them."""
        return [] if self.original_scope is not None else self.losses
