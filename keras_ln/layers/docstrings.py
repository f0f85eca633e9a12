"""The parts that the docstrings of layers and cells share.

They replace `{arguments}`, `{call}` and `{returns}` in a docstring. The texts
of the arguments are in `ops/argument_table.py`.
"""

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

from keras_ln.layers.constructor_arguments import argument_names
from keras_ln.ops.argument_table import describe

_T = TypeVar("_T", bound=type)

_KWARGS = """\
    **kwargs: arguments of `keras.layers.Layer`, such as `name` and `dtype`."""
_LAYER_KWARGS = """\
    **kwargs: `zero_output_for_mask`, `implementation` (ignored), and the
        arguments of `keras.layers.Layer`, such as `name` and `dtype`."""
_CELL_CALL = """\
    inputs: tensor (B, D); integers are cast to floating point.
    states: {given}.
"""
_CELL_RETURNS = """\
Returns:
    {returned}

Raises:
    ValueError: if an argument is wrong (the message names it); when built,
        if the rank of the inputs is not 2 or their size is unknown; when
        called, if the inputs are complex, a state is not floating point, or
        the number or shape of the states is wrong."""
_LAYER_CALL = """\
    sequences: tensor (B, T, D); integers are cast to floating point.
"""
_LAYER_RETURNS = """\
Returns:
    The outputs (B, T, U) with `return_sequences`, else the last output
    (B, U); with `return_state`, then also the final {states} (B, U).

Raises:
    ValueError: if an argument is wrong (the message names it); when called,
        if the sequences are complex, their rank is not 3 or their feature
        size has changed, or the number or shape of the initial states is
        wrong."""
# By the number of states.
_WORDS = {
    1: {
        "states": "h",
        "initial": "a tensor (B, U)",
        "given": "h (B, U), or a list of it",
        "returned": "h' (B, U) twice, in the layer's compute dtype; the second "
        "one is in a list\n    if `states` is a list.",
    },
    2: {
        "states": "h and c",
        "initial": "`[h, c]`, tensors (B, U)",
        "given": "`[h, c]`, tensors (B, U)",
        "returned": "h' (B, U) and `[h', c']`, in the layer's compute dtype.",
    },
}


def documented(owner: _T) -> _T:
    """A decorator of layers and cells that completes their docstring.

    `{arguments}` becomes the arguments of the constructor that the docstring
    does not describe. For cells and recurrent layers, `{call}` becomes the
    call's arguments, results and errors, `{inputs}` its first arguments, and
    `{returns}` its results and errors.
    """
    # There are no docstrings under `python -OO`.
    if not (text := inspect.getdoc(owner)):
        return owner
    cell: Any = getattr(owner, "cell_class", owner)
    words = {"least": ">= 0", "betas": "a `beta`"}
    tags, kwargs = {owner.__name__}, _KWARGS
    inputs = options = returns = ""
    if hasattr(cell, "equations"):
        words = {
            **_WORDS[len(cell.equations.states)],
            "least": "> 0",
            "sites": _listed(f'"{site}"' for site in cell.sites),
            "betas": _listed(
                f"`{v.name}`" for v in cell.equations.vectors if v.redundant
            ),
        }
        tags = {"cell", cell.__name__.removesuffix("Cell")}
        inputs, returns = _CELL_CALL, _CELL_RETURNS
        options = describe(["training"], {"call"}, words)
        if cell is not owner:
            kwargs, returns = _LAYER_KWARGS, _LAYER_RETURNS
            of_mask = describe(["mask", "initial_state"], {"call"}, words)
            inputs = f"{_LAYER_CALL}{of_mask}\n"
            of_reset = describe(["reset", "reset_state"], {"call"}, words)
            options = f"{options}\n{of_reset}"
    names = [name for name in argument_names(owner) if name != "kwargs"]
    listed = describe(names, tags, words, beside=text)
    inputs, returns = inputs.format(**words), returns.format(**words)
    for place, part in (
        ("    {arguments}", f"{listed}\n{kwargs}"),
        ("{call}", f"Call arguments:\n{inputs}{options}\n\n{returns}"),
        ("    {inputs}\n", inputs),
        ("{returns}", returns),
    ):
        text = text.replace(place, part)
    owner.__doc__ = text
    return owner


def _listed(names: Iterable[str]) -> str:
    """The names, with "and" before the last one."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last
