"""Docstrings as reStructuredText: our tables are Markdown.

Runs before napoleon, which turns the sections of Google's style.
"""

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

_SECTION = re.compile(r"(Args|Call arguments|Returns|Raises|Attributes):$")
_ROW = re.compile(r"\s*\|(.*)\|\s*$")


def _process(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    converted: list[str] = []
    for kind, block in _blocks(lines):
        if kind == "table":
            converted += ["", *_table(block), ""]
        elif kind == "indented":
            converted += ["", ".. code-block:: text", "", *block, ""]
        else:
            converted += block
    lines[:] = converted


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Tables, indented blocks outside of sections, and the other lines."""
    kinds, in_section = [], False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            in_section = bool(_SECTION.match(line))
        if in_section:
            kinds.append("text")
        elif _ROW.match(line):
            kinds.append("table")
        elif line.startswith("    "):
            kinds.append("indented")
        else:
            kinds.append("text")
    pairs = zip(kinds, lines, strict=True)
    for kind, group in groupby(pairs, key=lambda pair: pair[0]):
        yield kind, [line for _, line in group]


def _table(rows: list[str]) -> list[str]:
    cells = [
        [cell.strip() for cell in _ROW.match(row)[1].split("|")] for row in rows
    ]
    head, _, *body = cells
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *body):
        for k, cell in enumerate(row):
            lines.append(f"   {'* -' if k == 0 else '  -'} {cell}".rstrip())
    return lines


def _signature(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """That of `__init__`: Keras' layers have a `__new__` that takes all."""
    if what != "class":
        return signature, returns
    found = inspect.signature(obj.__init__)
    _, *parameters = found.parameters.values()
    plain = [
        p.replace(annotation=p.empty, default=_shown(p.default))
        for p in parameters
    ]
    empty = inspect.Signature.empty
    found = found.replace(parameters=plain, return_annotation=empty)
    return str(found), returns


class _Code(str):
    """A text that stands in a signature as it is."""

    __repr__ = str.__str__


def _shown(default: Any) -> Any:
    """A default; an object of Keras as the call that makes it."""
    if not hasattr(default, "get_config") or inspect.isclass(default):
        return default
    values = ", ".join(map(repr, default.get_config().values()))
    return _Code(f"{type(default).__name__}({values})")


def setup(app: Any) -> dict[str, Any]:
    """Registers the conversions, before that of napoleon (500)."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
