"""The site without building it: code on its pages, names, notebooks."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keras_ln
from docs import pages

pytestmark = [pytest.mark.full, pytest.mark.compiled]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = pages.pages()
# Code that does not run here, by its page and first line, and why.
ELSEWHERE = {
    ("docs/guides/devices.md", "import keras"): "it changes the whole process",
    (
        "docs/guides/devices.md",
        "keras.distribution.initialize(",
    ): "it needs two machines",
    ("docs/guides/devices.md", "import torch"): "it needs two processes",
    (
        "docs/guides/devices.md",
        "import tensorflow as tf",
    ): "only TensorFlow has it",
    (
        "docs/guides/export.md",
        'model.export("folder")',
    ): "only TensorFlow has it",
    (
        "docs/guides/export.md",
        "with keras_ln.ops.portable():",
    ): "it needs the packages of the exporters",
    ("docs/replace.md", "import json"): "it needs a file of TensorFlow-Addons",
    (
        "docs/replace.md",
        'model.get_layer("dense").set_weights(',
    ): "the file of the block before it",
    (
        "docs/replace.md",
        "layer = keras_ln.LNLSTM(units, center=False, zoneout=0.1)",
    ): "haste is not installed",
    ("docs/replace.md", "import numpy as np"): "tf_keras is not installed",
    (
        "docs/replace.md",
        "new = build_model_with_keras_3()",
    ): "the weights of the block before it",
}


def load(name):
    """A file of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, DOCS / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Pages that choose a backend run in a process that has not.
CHOOSES = re.compile(r'^os\.environ\["KERAS_BACKEND"\] = ', re.MULTILINE)
ALONE = [p for p in PAGES if any(CHOOSES.search(b) for _, b, _ in PAGES[p])]


@pytest.mark.parametrize("page", ALONE)
def test_code_on_pages_of_a_backend_runs(page, tmp_path):
    code = "\n".join(code for _, code, _ in PAGES[page])
    assert not any(indent or shown for indent, _, shown in PAGES[page])
    # As users run it: the tests' JAX has float64.
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True
    )


@pytest.mark.parametrize("page", sorted(PAGES.keys() - set(ALONE)))
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run(page, PAGES[page])


def test_code_that_does_not_run_is_listed():
    found = {
        (path.relative_to(ROOT).as_posix(), line)
        for path in DOCS.rglob("*.md")
        if "_build" not in path.parts
        for line in re.findall(
            r"^ *```\{code-block\} python\n *(.*)", path.read_text(), re.M
        )
    }
    assert found == set(ELSEWHERE)


def test_extras_that_guides_name():
    assert pages.extras("docs/guides/searching.md") == ("tune",)
    assert pages.extras("docs/guides/masks.md") == ()


def test_pages_have_code():
    """The test above can fail."""
    assert len(PAGES) > 8
    assert len(ALONE) == 2
    assert sum(len(blocks) for blocks in PAGES.values()) > 20
    ((_, code, shown),) = pages.BLOCK.findall(
        "```python\nprint(1)\n```\n\n```text\n1\n```\n"
    )
    assert (code, shown) == ("print(1)\n", "1\n")


def documented():
    """The names on the API pages."""
    found = set()
    for path in (DOCS / "api").glob("*.md"):
        module = None
        for line in path.read_text().splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.match(r"\.\. auto\w+:: (\S+)", line):
                found.add(f"{module}.{match[1]}")
    return found


def public():
    """The public names, but for the version and the modules themselves."""
    names = {f"keras_ln.{name}" for name in keras_ln.__all__}
    for part in ("analysis", "compat", "ops"):
        module = getattr(keras_ln, part)
        names |= {f"keras_ln.{part}.{name}" for name in module.__all__}
    tuning = vars(keras_ln.tuning)
    names |= {
        f"keras_ln.tuning.{name}"
        for name, value in tuning.items()
        if getattr(value, "__module__", None) == "keras_ln.tuning"
        and not name.startswith("_")
    }
    return names - {"keras_ln.__version__"}


def test_every_public_name_has_its_place():
    assert documented() == public()


def test_notebooks_have_no_outputs():
    paths = sorted((DOCS / "notebooks").glob("*.ipynb"))
    assert len(paths) == 3
    for path in paths:
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert code
        for cell in code:
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_files_of_the_repository_have_their_links_turned():
    repository = load("extensions/repository.py")
    text = repository.embedded("benchmarks/README.md", "performance")
    assert "](reliability.md" in text
    assert "](../benchmarks/results/" in text
    assert "## How it is measured" in text
    assert "](../RELIABILITY.md)" not in text
    assert set(repository.PAGES) == {"docs/replace.md", *shown_on_pages()}


def shown_on_pages():
    """The files that pages show, each with a link that leads to it."""
    line = load("extensions/repository.py").LINE
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        assert len(line.findall(text)) == text.count("is shown here")
        for match in line.finditer(text):
            assert (page.parent / match[2]).resolve() == ROOT / match[1]
            yield match[1]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_what_a_build_is_checked_for(tmp_path):
    build = load("build.py")
    page = tmp_path / "index.html"
    page.write_text(
        '<a href="#here">x</a><p id="here"></p><a href="https://x.org">x</a>'
        '<img src="data:image/png;base64,">'
    )
    assert build.faults(tmp_path) == ([], 1)
    page.write_text(
        '<a href="#there">x</a><a href="other.html">x</a>'
        '<script src="https://cdn.org/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.org/x.css">'
        '<link rel="canonical" href="https://x.org">'
    )
    (tmp_path / "x.css").write_text("a {background: url(https://x.org/y)}")
    found, links = build.faults(tmp_path)
    assert links == 2
    assert len(found) == 5
    assert "no such anchor" in "".join(found)
