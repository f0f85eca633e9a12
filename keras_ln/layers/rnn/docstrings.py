"""The arguments of a cell in the docstring of its layer."""

import inspect
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T", bound=type)


def lists_arguments_of(cell_class: type) -> Callable[[_T], _T]:
    """A decorator of layers, so that `help` shows the cell's arguments too.

    They are put in front of the layer's own; their text stands in the cell's
    docstring alone.
    """
    cell = inspect.getdoc(cell_class) or ""
    arguments = cell.partition("Args:\n")[2].partition("    **kwargs:")[0]

    def add(layer_class: _T) -> _T:
        # There are no docstrings under `python -OO`.
        if own := inspect.getdoc(layer_class):
            before, title, after = own.partition("Args:\n")
            layer_class.__doc__ = before + title + arguments + after
        return layer_class

    return add
