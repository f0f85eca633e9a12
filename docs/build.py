"""Builds the site: python docs/build.py [FOLDER].

Needs the extra `docs`. Warnings are errors, for example of links to pages and
sections that are not there. Notebooks run, and no page may load anything from
another host. The site is in docs/_build unless a folder is given.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What a browser loads by itself. The head of a page names other pages too.
LOADS = re.compile(
    r"""(<(script|img|source|iframe)\b[^>]*\ssrc=["']"""
    r"""|<link\b(?![^>]*\brel=["'](canonical|index|search|next|prev)\b)"""
    r"""[^>]*\shref=["']|url\(\s*["']?|@import\s+["']?)(https?:)?//[^\s"')]+"""
)


def main(folder: Path = HERE / "_build") -> int:
    """Builds and checks; returns the exit status."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-b", "html", "-d", folder / "doctrees"]
    done = subprocess.run([*command, HERE, folder / "html"])
    files = [p for kind in ("html", "css") for p in folder.rglob(f"*.{kind}")]
    found = [
        f"{path} loads from another host: {match[0]}"
        for path in sorted(files)
        for match in LOADS.finditer(path.read_text(encoding="utf-8"))
    ]
    print(*found, f"{folder / 'html'}: {len(files)} files", sep="\n")
    return done.returncode or int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
