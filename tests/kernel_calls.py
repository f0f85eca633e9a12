"""A plugin of pytest that runs with the kernels only what calls them.

    pytest --kernels -p kernel_calls

On torch, which compiles nothing, all tests run, and those that never call the
kernels are written to the file that UNCALLED names (uncalled.txt). On the other
backends they are left out, except those about the kernels.
"""

import os
from pathlib import Path

import pytest

FILE = Path(os.environ.get("UNCALLED", "uncalled.txt"))

# Keras is not imported yet: conftest.py has settings to make before.
if os.environ.get("KERAS_BACKEND") == "torch":
    uncalled = set()
    calls = []

    def pytest_collection_finish():
        """Notes all calls."""
        from keras_ln.ops.recurrence import native

        run = native.run

        def noted(problem):
            calls.append(problem)
            return run(problem)

        native.run = noted

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item):
        """Notes whether a test made any."""
        calls.clear()
        result = yield
        if not calls and not item.get_closest_marker("kernels"):
            uncalled.add(item.nodeid)
        return result

    def pytest_sessionfinish():
        """Adds what this process has run; others do too, hence one write."""
        lines = "".join(f"{name}\n" for name in sorted(uncalled))
        with FILE.open("ab", buffering=0) as file:
            file.write(lines.encode())

else:

    def pytest_collection_modifyitems(config, items):
        """Leaves out what called no kernel."""
        known = set(FILE.read_text().splitlines())
        uncalled = [item for item in items if item.nodeid in known]
        items[:] = [item for item in items if item.nodeid not in known]
        config.hook.pytest_deselected(items=uncalled)
