"""What the tests of the benchmarks have in common."""

import sys

import pytest

from benchmarks import harness


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    """Threads, and torch's arithmetic, are afterwards as they were before."""
    monkeypatch.setattr(harness, "set_threads", lambda number: None)
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
