"""Each row of RELIABILITY.md's tables has a test that proves it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARK = re.compile(r'@pytest\.mark\.promise\(\s*"([^"]+)"\s*\)')
# The first column of the tables that promise something.
PROMISES = ("Event", "Inputs", "Engine", "Promise")


def rows(text):
    """The first cells of those tables."""
    heading = None
    for line in text.splitlines():
        cell = line.split("|")[1].strip() if line.startswith("| ") else ""
        if not cell:
            heading = heading if line.startswith("|--") else None
        elif heading is None:
            heading = cell
        elif heading in PROMISES:
            yield cell


def test_every_promise_has_a_test():
    text = (ROOT / "RELIABILITY.md").read_text()
    found = {
        promise
        for folder in ("tests", "kernels/tests")
        for path in (ROOT / folder).rglob("test_*.py")
        for promise in MARK.findall(path.read_text())
    }
    promised = [*rows(text)]
    assert len(promised) > 30
    assert not [row for row in promised if not row.startswith(tuple(found))]
    whole = " ".join(text.split())
    assert not [promise for promise in found if promise not in whole]
