"""What each test file costs: tests, seconds, and what XLA compiles in it.

    KERAS_BACKEND=jax python tests/support/count_compilations.py costs.csv tests

The arguments after the table's file are those of pytest. The frameworks log
every compilation; pytest keeps what a test logs, from all its processes.
"""

import collections
import csv
import os
import re
import sys

LOGGED = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "device_compilation_profiler=1",
    "JAX_LOG_COMPILES": "1",
}
# TensorFlow writes microseconds, JAX seconds.
COMPILED = re.compile(
    r"Compiled \S+ \d+ times, compile time: (\d+) us"
    r"|Finished XLA compilation of \S+ in ([\d.e-]+) sec"
)
HEADER = ("file", "tests", "seconds", "compilations", "compiling_seconds")


class Costs:
    """A pytest plugin that adds up the costs of each file."""

    def __init__(self):
        """Starts with none."""
        self.of_file = collections.defaultdict(lambda: [0, 0.0, 0, 0.0])

    def pytest_runtest_logreport(self, report):
        """Adds one phase of a test; with xdist in the controlling process."""
        costs = self.of_file[report.nodeid.partition("::")[0]]
        costs[0] += report.when == "call"
        costs[1] += report.duration
        # Each once: what JAX logs stands in two sections.
        found = {
            match[0]: match
            for _, text in report.sections
            for match in COMPILED.finditer(text)
        }
        for microseconds, seconds in map(re.Match.groups, found.values()):
            costs[2] += 1
            costs[3] += float(seconds or 1e-6 * float(microseconds))

    def write(self, path):
        """The table, the most expensive file first, the sums last."""
        rows = sorted(self.of_file.items(), key=lambda row: -row[1][1])
        columns = zip(*self.of_file.values(), strict=True)
        rows.append(("sum", list(map(sum, columns))))
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            for name, (tests, seconds, compilations, compiling) in rows:
                times = (round(seconds, 1), compilations, round(compiling, 1))
                writer.writerow((name, tests, *times))


def main(argv):
    """Runs pytest; returns its exit status."""
    if not argv:
        sys.exit(__doc__)
    os.environ |= LOGGED
    import pytest

    costs = Costs()
    status = pytest.main(["-q", *argv[1:]], plugins=[costs])
    costs.write(argv[0])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
