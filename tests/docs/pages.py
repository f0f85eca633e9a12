"""Code on pages: what runs, by page, and how."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

from docs.alone import ALONE, ELSEWHERE, WITHIN

ROOT = Path(__file__).resolve().parents[2]

# A block of Python, and the output if it is shown after it.
BLOCK = re.compile(
    r"^( *)```python\n(.*?)^ *```$(?:\n+```(?:text)?\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


def load(name):
    """A file of docs/, which is no package."""
    path = ROOT / "docs" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(listed):
    """The blocks that docs/alone.py lists, or the others, by their page."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        page = path.relative_to(ROOT).as_posix()
        if "_build" not in path.parts:
            for block in BLOCK.findall(path.read_text(encoding="utf-8")):
                first = block[1].partition("\n")[0].strip()
                if (
                    (page, first) in {**ALONE, **ELSEWHERE, **WITHIN}
                ) is listed:
                    yield (page, first), block


def pages():
    """The blocks of every page that run there, by its path."""
    found = {}
    for (page, _), block in blocks(listed=False):
        found.setdefault(page, []).append(block)
    return found


def elsewhere():
    """The code that does not run there, by page and first line."""
    found = [(place, block[1]) for place, block in blocks(listed=True)]
    code = dict(found)
    if len(code) < len(found):
        raise ValueError("two blocks of a page have the same first line")
    return code


def run(page, blocks):
    """Runs them in the working directory, one after the other."""
    names = {"__name__": page}
    for indent, code, shown in blocks:
        lines = [line.removeprefix(indent) for line in code.splitlines()]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile("\n".join(lines), page, "exec"), names)
        if shown and said.getvalue() != shown:
            raise AssertionError(f"{page} shows\n{shown}{said.getvalue()}")
