"""Other values for the variables of a layer, for the length of a call."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_ln.ops.portable import current_trace


class Substitution(keras.StatelessScope):
    """A scope in which some variables have other values, and all else holds.

    A plain `StatelessScope` hides the one around it, in which `fit` on JAX
    keeps the values of all variables, and holds back assignments and losses.
    This one lets them through. Like every such scope it belongs to a thread,
    and ends with its block, after an error too.

    Keras' loops on JAX open a scope where there is none, so that values made
    in the loop stay there. Where they find this one alone, it sees to that.
    """

    def __init__(self, values: Mapping[int, Any]) -> None:
        """Takes the tensors that stand for variables, by the `id` of these."""
        super().__init__(collect_losses=True)
        self._values = dict(values)
        # The values of variables inside of a loop, with what it traces.
        self._in_loops: list[tuple[int, Any, Any]] = []

    def __enter__(self) -> "Substitution":
        """Makes it the scope of this thread."""
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
        """Assigns outside of this scope, or in the loop that runs in it."""
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
        """The losses added inside that no scope around this one has."""
        return [] if self.original_scope is not None else self.losses
