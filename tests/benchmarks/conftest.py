"""What the tests of the benchmarks have in common."""

import pytest

from benchmarks import baselines, harness


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    """The suite's threads stay as they are."""
    monkeypatch.setattr(harness, "set_threads", lambda number: None)
    monkeypatch.setattr(baselines, "set_up_torch", lambda threads: None)
