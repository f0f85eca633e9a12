"""What the site adds to pages of plain Markdown, which GitHub shows as well.

It adds the folders' pages to the menu, whose other entries docs/index.md has,
links from code such as `keras_ln.LNLSTM` to the API, and boxes for quotes that
begin with `[!NOTE]` (older MyST parsers, for Python 3.10, do not know them).
"""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

_LINK = re.compile(r"\]\((\w+)\.md\)")
_NAME = re.compile(r"keras_ln(\.\w+)+")
_KIND = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*")


def _read(app: Any, docname: str, source: list[str]) -> None:
    if docname in ("guides/index", "paper/index"):
        pages = dict.fromkeys(_LINK.findall(source[0]))
        lines = ["", "```{toctree}", ":hidden:", "", *pages, "```", ""]
        source[0] += "\n".join(lines)


class Links(SphinxTransform):
    """Makes code that names something of the API a link to it."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Wraps the nodes; what the API does not have stays code."""
        for node in [*self.document.findall(nodes.literal)]:
            inside = (nodes.reference, nodes.title, addnodes.pending_xref)
            if _NAME.fullmatch(node.astext()) and not isinstance(
                node.parent, inside
            ):
                link = addnodes.pending_xref(
                    "",
                    node.deepcopy(),
                    refdomain="py",
                    reftype="obj",
                    reftarget=node.astext(),
                    refdoc=self.env.docname,
                    refexplicit=True,
                    refwarn=False,
                )
                node.replace_self(link)


class Boxes(SphinxTransform):
    """Makes GitHub's alerts admonitions."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Replaces the quotes that begin with a kind of alert."""
        for quote in [*self.document.findall(nodes.block_quote)]:
            first = next(quote.findall(nodes.Text), None)
            if first and (kind := _KIND.match(first)):
                first.parent.replace(first, nodes.Text(first[kind.end() :]))
                box = getattr(nodes, kind[1].lower())
                quote.replace_self(box("", *quote.children))


def setup(app: Any) -> dict[str, Any]:
    """Registers the additions."""
    app.connect("source-read", _read)
    app.add_transform(Links)
    app.add_transform(Boxes)
    return {"parallel_read_safe": True}
