"""Pages show as they are meant to, and their links lead somewhere.

On GitHub as on the site: pages are CommonMark with GitHub's tables and alerts.
"""

import json
import re

import pytest
from docs.pages import ROOT, load
from markdown_it import MarkdownIt

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
# Mathematics is text to this renderer.
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MATHEMATICS = re.compile(r"\$[^$\n]+\$")
ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]$")
# What a reader would see as it is written, with an example.
RAW = {
    "a role": (r"\{[\w:.+-]+\}$", "See {func}`keras_ln.with_layer_norm`."),
    "a directive": (r"^:::", ":::{note}\nA box.\n:::"),
    "a label": (r"^\([\w-]+\)=", "(label)=\n# Title"),
    "a definition": (r"^: ", "Term\n: What it is."),
    "a table": (r"^\|.*\|.*\||\|\s*:?-{3,}", "| a | b |\n| c | d |"),
    "a link": (r"\]\(|\]\[|^\[[^\]]+\]:", "A [link](with a space.md)."),
    "a footnote": (r"\[\^", "A note[^1]."),
    "emphasis": (r"\*\*|(?<!\w)_\w+_(?!\w)", "A **bold **word."),
    "an alert": (r"\[!", "> [!HINT]\n> Text."),
    "code": (r"``", "An `unclosed``code."),
}
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def raw(text):
    """What of a page shows raw, a sentence for each find."""
    for token in MARKDOWN.parse(text):
        if token.type == "fence" and token.info.startswith("{"):
            yield f"a directive: {token.info}"
        begins = True
        for part in token.children or ():
            if part.type == "text" and not ALERT.match(part.content):
                # Within a line nothing is at its beginning.
                shown = MATHEMATICS.sub("", part.content)
                shown = shown if begins else f" {shown}"
                for what, (pattern, _) in RAW.items():
                    if re.search(pattern, shown):
                        yield f"{what}: {part.content}"
            begins = part.type in ("softbreak", "hardbreak")


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
    if path.suffix == ".md" and path.parent.name != "api":
        yield from raw(path.read_text(encoding="utf-8"))
    for target, section in LINK.findall(prose(path)):
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or there in STUBS:
            yield f"{target} is not there"
        elif section and section not in sections(there):
            yield f"{target} has no section {section}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages(path):
    found = [*faults(path)]
    # The site's first page has its menu.
    if path == ROOT / "docs" / "index.md":
        found = [fault for fault in found if "{toctree}" not in fault]
    assert not found, "\n".join(found)
