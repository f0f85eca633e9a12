"""Wording that makes a reader go back, as far as regular expressions see it.

    python tests/support/words.py                 how often, against the limits
    python tests/support/words.py --list where    every place; or all patterns'

Pages, docstrings, messages (strings of several words) and comments may have so
many of each pattern as `MOST` says, so that no new ones come in: lower a limit
when you have rewritten some. Code, quoted or in a block, does not count.
"""

import argparse
import ast
import collections
import io
import json
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What to write in place of it; and what finds it.
PATTERNS = {
    "that of": ("repeat the noun", r"\b(that|those) of\b|\bours\b"),
    "what": ("name the thing", r"\bwhat\b(?![^.?!]*\?)"),
    "where": ("if, when, which; it is for places", r"\bwhere\b"),
    "old words": (
        "only, again, except, not either, is, passes, on its own",
        r"\b(alone|anew|but for|neither|by (it|them)sel(f|ves)"
        r"|stands?(?! for\b)|hands?(?!-))\b",
    ),
    "hedge": (
        "the claim first",
        r"(?:^|[.:;] )(not (timed|tried|measured|run)|undecided)\b",
    ),
    "there is": (
        "the verb first",
        r"\bwhether there (is|are)\b|\banother \w+ than\b",
    ),
    "numbers": (
        "a table: six numbers in a sentence are too many",
        r"(?:(?<![\w.,])\d"
        r"(?:(?![.:;?!]\s|\n\n|\n *- |\b  |(?<![\w.,])\d)[^|])*){6}",
    ),
}
PLACES = ("pages", "docstrings", "messages", "comments")
MOST = {
    "that of": (0, 1, 2, 0),
    "what": (0, 15, 1, 7),
    "where": (1, 6, 0, 7),
    "old words": (0, 11, 0, 8),
    "hedge": (0, 0, 0, 0),
    "there is": (0, 0, 0, 0),
    "numbers": (0, 3, 0, 2),
}
FOLDERS = (
    *("docs/**/*.md", "*/README.md", "examples/**/*.md", "docs/**/*.ipynb"),
    *("keras_ln/**/*.py", "examples/**/*.py", "benchmarks/**/*.py"),
    "kernels/keras_ln_kernels/*.py",
)
QUOTED = re.compile(r"`[^`\n]*`")


def without(pattern, text):
    """The text without what the pattern matches, on as many lines."""
    return re.sub(
        pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.M | re.S
    )


def of_page(text):
    """("pages", line, prose) of Markdown."""
    yield "pages", 1, without(r"^(`{3,}).*?^\1|^    [^\n]*$", text)


def of_notebook(text):
    """("pages", cell, prose) of a notebook."""
    for number, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] == "markdown":
            yield "pages", number, "".join(cell["source"])


def of_source(text):
    """(place, line, prose) of Python."""
    documented, tree = set(), ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str() as doc) as string), *_]:
                    documented.add(string)
                    examples = r"^ *(>>>|\.\.\. )[^\n]*$"
                    yield "docstrings", string.lineno, without(examples, doc)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(str() as words) if node not in documented:
                if words.count(" ") > 1:
                    yield "messages", node.lineno, words
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string


READERS = {".md": of_page, ".ipynb": of_notebook, ".py": of_source}


def found():
    """(pattern, place, file, line, words around it) of every one."""
    paths = [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in ROOT.glob(f))]
    for path in sorted({*paths}):
        file = path.relative_to(ROOT).as_posix()
        if "/_build/" in file or file == "CHANGELOG.md":
            continue
        for place, first, prose in READERS[path.suffix](path.read_text()):
            prose = QUOTED.sub("CODE", prose)
            for name, (_, pattern) in PATTERNS.items():
                for match in re.finditer(pattern, prose, re.I | re.M):
                    line = first + prose.count("\n", 0, match.start())
                    around = prose[
                        max(0, match.start() - 60) : match.end() + 60
                    ]
                    yield name, place, file, line, " ".join(around.split())


def main(argv=None):
    """Prints the counts; 1 where there are more than there may be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list",
        nargs="*",
        metavar="PATTERN",
        help="show every place, of all patterns or of these",
    )
    parser.add_argument(
        "--in", dest="folder", default="", help="a path's start"
    )
    args = parser.parse_args(argv)
    everything = [row for row in found() if row[2].startswith(args.folder)]
    if args.list is not None:
        for name, place, file, line, around in everything:
            if name in (args.list or PATTERNS):
                print(f"{file}:{line}: {name} ({place}): ...{around}...")
    counts = collections.Counter(row[:2] for row in everything)
    print(f"{'':10}", *(f"{place:>16}" for place in PLACES))
    more = 0
    for name, most in MOST.items():
        cells = [
            (counts[name, place], n)
            for place, n in zip(PLACES, most, strict=True)
        ]
        print(f"{name:10}", *(f"{f'{k} of {n}':>16}" for k, n in cells))
        if any(k > n for k, n in cells):
            more = 1
            print(f"  More than before. Write instead: {PATTERNS[name][0]}.")
    if more:
        print("python tests/support/words.py --list shows them.")
    return more


if __name__ == "__main__":
    sys.exit(main())
