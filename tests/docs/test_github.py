"""Pages show as they are meant to where Markdown is rendered, as on GitHub."""

import re

import pytest
from docs.measured import ROOT
from markdown_it import MarkdownIt

pytestmark = pytest.mark.full

PAGES = [
    path
    for pattern in ("*.md", "*/README.md", "docs/**/*.md")
    for path in sorted(ROOT.glob(pattern))
    if not {"api", "_build"} & {*path.parts}
]
# What GitHub adds to CommonMark; mathematics is text to this renderer.
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MATHEMATICS = re.compile(r"\$[^$\n]+\$")
ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]$")
# What a reader would see as it is written.
RAW = {
    "a role": r"\{[\w:.+-]+\}$",
    "a directive": r"^:::",
    "a label": r"^\([\w-]+\)=",
    "a definition": r"^: ",
    "a table": r"^\|.*\|.*\||\|\s*:?-{3,}",
    "a link": r"\]\(|\]\[|^\[[^\]]+\]:",
    "a footnote": r"\[\^",
    "emphasis": r"\*\*|(?<!\w)_\w+_(?!\w)",
    "an alert": r"\[!",
    "code": r"``",
}


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
                for what, pattern in RAW.items():
                    if re.search(pattern, shown):
                        yield f"{what}: {part.content}"
            begins = part.type in ("softbreak", "hardbreak")


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_shows_raw(path):
    found = [*raw(path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "See {func}`keras_ln.with_layer_norm`.",
        "```{image} a.png\n```",
        ":::{note}\nA box.\n:::",
        "(label)=\n# Title",
        "Term\n: What it is.",
        "| a | b |\n| c | d |",
        "A [link](with a space.md).",
        "A [link][nowhere].",
        "A note[^1].",
        "A **bold **word.",
        "> [!HINT]\n> Text.",
        "An `unclosed``code.",
    ],
)
def test_what_shows_raw_is_found(text):
    assert [*raw(text)]


def test_what_github_renders_passes():
    text = (
        "# A\n\n![b](b.png) $x_i_j$ `{a}` [c](c.md) **d** *e*\n\n"
        "| a | b |\n|---|---|\n| c | `d` |\n\n> [!NOTE]\n> A note.\n"
    )
    assert not [*raw(text)]
