"""The links of pages lead somewhere, on GitHub as on the site."""

import json
import re

import pytest
from docs.pages import ROOT, load

pytestmark = pytest.mark.full

REPOSITORY = load("extensions/repository.py")
# Pages that are written when the site is built.
STUBS = {
    ROOT / "docs" / page
    for page in REPOSITORY.PAGES.values()
    if page != "index.md"
}
FILES = sorted(
    path
    for pattern in ("*.md", "*/README.md", "docs/**/*.md", "docs/**/*.ipynb")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts and path not in STUBS
)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def prose(path):
    """A page without its code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join(
            cell["source"] for cell in cells if cell["cell_type"] == "markdown"
        )
    return FENCE.sub("", text)


def sections(path):
    """The anchors that its headings have, on GitHub and on the site."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in titles
    }


def faults(path):
    """What is wrong with a page, a sentence for each find."""
    for target, section in LINK.findall(prose(path)):
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or there in STUBS:
            yield f"{target} is not there"
        elif section and section not in sections(there):
            yield f"{target} has no section {section}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages(path):
    found = [*faults(path)]
    assert not found, "\n".join(found)
