"""What the docstrings of layers and cells share.

A docstring says where: in the place of `{arguments}`, `{call}`, `{returns}`.
What the arguments mean is in `ops/argument_table.py`.
"""

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

from keras_ln.layers.constructor_arguments import argument_names
from keras_ln.ops.argument_table import describe

_T = TypeVar("_T", bound=type)

_KWARGS = """\
    **kwargs: arguments of `keras.layers.Layer`, such as `name`, `dtype`."""
_LAYER_KWARGS = """\
    **kwargs: `implementation`, which is ignored, `zero_output_for_mask`,
        and the arguments of `keras.layers.Layer`, such as `name`, `dtype`."""
_CELL_CALL = """\
    inputs: tensor (B, D); integers are cast to floating point.
    states: {given}.
"""
_CELL_RETURNS = """\
Returns:
    {returned}

Raises:
    ValueError: for a wrong argument, named in the message; when built,
        for inputs of another rank than 2 or of unknown size; when called,
        for complex inputs, and for states that are not floating point or
        of another number or shape."""
_LAYER_CALL = """\
    sequences: tensor (B, T, D); integers are cast to floating point.
"""
_LAYER_RETURNS = """\
Returns:
    With `return_sequences` the outputs (B, T, U), otherwise the last one
    (B, U); with `return_state` followed by the final {states} (B, U).

Raises:
    ValueError: for a wrong argument, named in the message; when called,
        for sequences that are complex, not of rank 3 or of
        another feature size than before, and for initial states of
        another number or shape."""
# By the number of states.
_WORDS = {
    1: {
        "states": "h",
        "initial": "a tensor (B, U)",
        "given": "h (B, U), or a list of it",
        "returned": "h' (B, U) twice, the second time in a list if it came in "
        "one, in the\n    layer's compute dtype.",
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
    does not describe itself; of what recurs, `{call}` becomes what a call
    takes, returns and raises, `{inputs}` what it begins with, and `{returns}`
    the last two alone.
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
            **_WORDS[cell.equations.states],
            "least": "> 0",
            "sites": _listed(f'"{site}"' for site in cell.sites),
            "betas": _listed(
                f"`{v.name}`" for v in cell.vectors if v.redundant
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
