"""Pages that hold a file of the repository, such as benchmarks/README.md.

Such a page is written when the site is built; docs/index.md shows README.md at
the line `[NAME](PATH) <!-- is shown here -->`. All pages link to such files, as
NAME#SECTION; on the site that leads to their page.
"""

import os
import posixpath
import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = ConfigParser()
_SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")
ADDRESS = _SETTINGS["metadata"]["url"]
BLOB = f"{ADDRESS}/blob/main/"
# Files that are a page of the site.
PAGES = {
    "README.md": "index.md",
    "RELIABILITY.md": "reliability.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "paper/experiments.md",
    "kernels/README.md": "kernels.md",
}
LINE = re.compile(r"^\[(\S+)\]\((\S+)\) <!-- is shown here -->$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def turned(text: str, name: str, page: str) -> str:
    """The text of a file, with its links as they have to be on a page.

    Args:
        text: what stands in the file.
        name: the file, from the repository's root.
        page: the page, from the site's, without a folder's dots.
    """
    here = posixpath.dirname(page)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(
            posixpath.join(posixpath.dirname(name), match[1])
        )
        if target in PAGES:
            there = PAGES[target]
        elif name.startswith("docs/") and not (ROOT / target).is_dir():
            return match[0]  # The other links of a page are right.
        elif re.match(r"docs/.*\.(md|ipynb)$", target):
            there = target.removeprefix("docs/")
        elif target.endswith((".png", ".svg")):
            there = posixpath.join("..", target)
        else:
            return f"]({BLOB}{target}{match[2] or ''})"
        return f"]({posixpath.relpath(there, here or '.')}{match[2] or ''})"

    parts = _FENCE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def embedded(name: str, page: str) -> str:
    """The text of a file as a part of `page`."""
    return turned((ROOT / name).read_text(encoding="utf-8"), name, page)


def _write(app: Any) -> None:
    for name, page in PAGES.items():
        if not (path := ROOT / "docs" / page).exists():
            target = os.path.relpath(ROOT / name, path.parent)
            line = f"[{name}]({target}) <!-- is shown here -->\n"
            path.write_text(line, encoding="utf-8")


def _read(app: Any, docname: str, source: list[str]) -> None:
    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        app.env.note_dependency(os.fspath(ROOT / name))
        return embedded(name, docname)

    path = Path(app.env.doc2path(docname))
    name = path.relative_to(ROOT).as_posix()
    source[0] = LINE.sub(replaced, turned(source[0], name, docname))


def setup(app: Any) -> dict[str, Any]:
    """Registers the pages and the replacement."""
    app.connect("builder-inited", _write)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
