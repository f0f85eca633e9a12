"""Links of the Markdown files, as those follow them who read the sources."""

import json
import re

import pytest
from docs.measured import ROOT, load

pytestmark = pytest.mark.full

REPOSITORY = load("extensions/repository.py")
FILES = sorted(
    path
    for pattern in ("*.md", "*/README.md", "docs/**/*.md", "docs/**/*.ipynb")
    for path in ROOT.glob(pattern)
    if "_build" not in path.parts
)
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
# Pages of the site that hold a file and nothing else.
STUBS = {
    (ROOT / "docs" / page).resolve() for file, page in REPOSITORY.PAGES.items()
}


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
    """What is wrong with a page's links."""
    for target, section in LINK.findall(prose(path)):
        there = (path.parent / target).resolve() if target else path
        if not there.exists():
            yield f"{target} is not there"
        elif there in STUBS:
            yield f"{target} is a page for the site: link to what it holds"
        elif section and section not in sections(there):
            yield f"{target} has no section {section}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_to_what_they_name(path):
    assert [*faults(path)] == []


def test_faults_are_found(tmp_path):
    page = tmp_path / "page.md"
    stub = min(STUBS)
    page.write_text(
        "# A title, 2\n[a](#a-title-2) [b](page.md#a-title-2) [c](https://x.org)"
        f"\n[d](none.md) [e](#a-title) [f]({stub})\n```\n[g](none.md)\n```\n"
    )
    assert len([*faults(page)]) == 3


def test_files_of_the_repository_have_their_links_turned():
    text = REPOSITORY.embedded("benchmarks/README.md", "benchmarks")
    assert "](reliability.md" in text
    assert "](../benchmarks/results/" in text
    assert "## How it is measured" in text
    assert "](../RELIABILITY.md)" not in text
    text = "[a](../../RELIABILITY.md#faults) [b](export.md) [c](../../LICENSE)"
    assert REPOSITORY.turned(text, "docs/guides/a.md", "guides/a") == (
        "[a](../reliability.md#faults) [b](export.md) [c](../../LICENSE)"
    )
    assert set(REPOSITORY.PAGES) == {*shown_on_pages()}
    text = "[a](docs/guides/masks.md#b) ![c](docs/figures/d.png)"
    assert REPOSITORY.turned(text, "README.md", "index") == (
        "[a](guides/masks.md#b) ![c](../docs/figures/d.png)"
    )


def shown_on_pages():
    """The files that pages show, each with a link that leads to it."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text()
        assert len(REPOSITORY.LINE.findall(text)) == text.count("is shown here")
        for match in REPOSITORY.LINE.finditer(text):
            assert (page.parent / match[2]).resolve() == ROOT / match[1]
            yield match[1]
