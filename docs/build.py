"""Builds the site and checks it: python docs/build.py [FOLDER].

Needs the extra `docs`. Warnings are errors, notebooks run, and in what was
built every internal link and anchor must exist and no page may load anything
from another host. The site is in docs/_build unless a folder is given.
"""

import argparse
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

HERE = Path(__file__).resolve().parent
# Attributes whose target a browser loads by itself.
LOADED = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("source", "src"),
    ("iframe", "src"),
}
# Links of a page's head that name other pages.
NAMED = ("canonical", "index", "search", "next", "prev")
IN_CSS = re.compile(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"]?(https?:)?//")


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, path: Path) -> None:
        """Reads the page."""
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        """Notes what the tag names."""
        given = {name: value for name, value in attrs if value}
        self.anchors |= {given[n] for n in ("id", "name") if n in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif given.get("rel") not in NAMED:
            self.loads += [
                given[n] for t, n in LOADED if t == tag and n in given
            ]


def is_external(target: str) -> bool:
    """Whether a target is on another host, or no file at all."""
    return bool(re.match(r"(?:[a-z][a-z0-9+.-]*:|//)", target))


def faults(site: Path) -> tuple[list[str], int]:
    """What is wrong in a built site, and how many internal links it has."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    found, count = [], 0
    for path, page in sorted(pages.items()):
        name = path.relative_to(site.resolve())
        for target in page.loads:
            if is_external(target) and not target.startswith("data:"):
                found.append(f"{name} loads {target}")
        for link in page.links:
            if is_external(link):
                continue
            count += 1
            file, anchor = urldefrag(link)
            there = (path.parent / unquote(file)).resolve() if file else path
            if there.is_dir():
                there /= "index.html"
            if not there.exists():
                found.append(f"{name} links to {link}, which is not there")
            elif (
                anchor
                and there in pages
                and unquote(anchor) not in pages[there].anchors
            ):
                found.append(f"{name} links to {link}: no such anchor")
    for path in site.rglob("*.css"):
        if IN_CSS.search(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)} loads from another host")
    return found, count


def main(argv: list[str] | None = None) -> int:
    """Builds and checks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "folder",
        nargs="?",
        default=HERE / "_build",
        type=Path,
        help="the folder of the site (default: docs/_build)",
    )
    folder = parser.parse_args(argv).folder
    start = time.monotonic()
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-b", "html", "-d", folder / "doctrees"]
    done = subprocess.run([*command, HERE, folder / "html"])
    if done.returncode:
        return done.returncode
    found, count = faults(folder / "html")
    print(*found, sep="\n", end="\n" if found else "")
    print(
        f"{folder / 'html'}: {count} internal links, {len(found)} faults, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
