"""A plugin of pytest that runs with the kernels only what calls them.

    pytest -p kernel_calls

Where there is no file that KERNEL_CALLS names (kernel_calls.txt), which is
torch's run, all tests run, and how often each called a kernel, or would have,
had they been on, is written to it. Where there is one, the tests that called
none are left out, except those about the kernels.
"""

import dataclasses
import os
from pathlib import Path

import pytest

FILE = Path(os.environ.get("KERNEL_CALLS", "kernel_calls.txt"))

# Keras is not imported yet: conftest.py has settings to make before.
if not FILE.exists():
    counted = {}
    calls = []

    def pytest_collection_finish():
        """Notes all calls."""
        from keras_ln import backend
        from keras_ln.engine.dispatch import IMPLEMENTATIONS

        native = IMPLEMENTATIONS["native"]

        def noted(program):
            # The last reason of all.
            found = native.unavailable(program)
            if found == backend.native_reason():
                calls.append(1)
            return found

        IMPLEMENTATIONS["native"] = dataclasses.replace(
            native, unavailable=noted
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item):
        """Counts those of a test."""
        calls.clear()
        result = yield
        if not item.get_closest_marker("kernels"):
            counted[item.nodeid] = len(calls)
        return result

    def pytest_sessionfinish():
        """Adds what this process has run; others do too, hence one write."""
        lines = "".join(f"{n} {name}\n" for name, n in sorted(counted.items()))
        with FILE.open("ab", buffering=0) as file:
            file.write(lines.encode())

else:
    uncalled = set()

    def pytest_configure(config):
        """Reads the file; refuses it if no test called a kernel."""
        lines = [line.split(" ", 1) for line in FILE.read_text().splitlines()]
        uncalled.update(name for count, name in lines if count == "0")
        if len(uncalled) == len(lines):
            raise pytest.UsageError(f"{FILE}: no test called a kernel on torch")

    def pytest_collection_modifyitems(config, items):
        """Leaves out what called no kernel."""
        left_out = [item for item in items if item.nodeid in uncalled]
        items[:] = [item for item in items if item.nodeid not in uncalled]
        config.hook.pytest_deselected(items=left_out)
