"""Code on pages, as a user has it: python tests/docs/pages.py [PAGE ...].

With `uv` it makes an environment for each page, with a framework and the extras
that the page names and nothing else, and runs the page's code there.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests")]

from docs.alone import ALONE, ELSEWHERE, WITHIN  # noqa: E402

# A block of Python, and the output if it is shown after it.
BLOCK = re.compile(
    r"^( *)```python\n(.*?)^ *```$(?:\n+```(?:text)?\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
FRAMEWORKS = ("tensorflow", "jax", "torch")


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


def extras(page):
    """The extras that a guide names, other than frameworks."""
    # Other pages name extras for examples and for contributors.
    if not page.startswith("docs/guides/"):
        return ()
    text = (ROOT / page).read_text(encoding="utf-8")
    return tuple(sorted({*re.findall(r"'\.\[(\w+)\]'", text)} - {*FRAMEWORKS}))


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        default=[*pages()],
        help="pages to run (default: all)",
    )
    parser.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        default="tensorflow",
        help="the backend of Keras (default: %(default)s)",
    )
    parser.add_argument(
        "--here", action="store_true", help="in this environment"
    )
    args = parser.parse_args()
    known = pages()
    failed = []
    for page in args.pages:
        with tempfile.TemporaryDirectory() as folder:
            if args.here:
                os.chdir(folder)
                run(page, known[page])
                os.chdir(ROOT)
                continue
            wanted = f"{ROOT}[{','.join((args.framework, *extras(page)))}]"
            command = [
                *("uv", "run", "-q", "--isolated", "--no-project"),
                *("--python", sys.executable, "--with", wanted),
                *("python", __file__, "--here", page),
            ]
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"KERAS_BACKEND": args.framework},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        wrong = done.returncode != 0
        says = "fails" if wrong else "runs"
        print(f"{wanted.removeprefix(str(ROOT))} {page}: {says}", flush=True)
        if wrong:
            print(done.stdout)
            failed.append(page)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
