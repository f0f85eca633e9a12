"""The site without building it: code on its pages, names, notebooks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.alone import ALONE, ELSEWHERE, WITHIN

import keras_ln
from docs import pages

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = pages.pages()
# Pages that choose a backend run there, in a process that has not chosen.
CHOOSES = re.compile(r'^os\.environ\["KERAS_BACKEND"\] = "(\w+)"', re.MULTILINE)
CHOSEN = {
    page: match[1]
    for page, blocks in PAGES.items()
    for _, code, _ in blocks
    if (match := CHOOSES.search(code))
}
BACKEND = os.environ["KERAS_BACKEND"]


def run_alone(code, folder):
    # As users run it: the tests' JAX has float64.
    environment = os.environ | {
        "JAX_ENABLE_X64": "0",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, check=True
    )


@pytest.mark.every_backend
@pytest.mark.parametrize(
    "place",
    [
        *(page for page, backend in CHOSEN.items() if backend == BACKEND),
        *(place for place in ALONE if ALONE[place][0] == BACKEND),
    ],
    ids=str,
)
def test_code_that_needs_a_process_runs(place, tmp_path):
    if place in ALONE:
        _, before, after = ALONE[place]
        code = before + pages.elsewhere()[place] + after
    else:
        assert not any(indent or shown for indent, _, shown in PAGES[place])
        code = "\n".join(code for _, code, _ in PAGES[place])
    run_alone(code, tmp_path)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("page", sorted(PAGES.keys() - CHOSEN.keys()))
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.run(page, PAGES[page])


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("place", WITHIN, ids=str)
def test_code_with_more_around_it_runs(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, after = WITHIN[place]
    code = before + pages.elsewhere()[place] + after
    pages.run(place[0], [("", code, "")])


def test_code_that_does_not_run_is_listed():
    listed = {**ELSEWHERE, **ALONE, **WITHIN}
    assert pages.elsewhere().keys() == listed.keys()


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
