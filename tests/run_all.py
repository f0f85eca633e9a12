"""All checks of the repository in one command: python tests/run_all.py.

It runs sessions of noxfile.py in this environment: the suites one after
another, and the other checks beside them. pytest's count closes the output; the
exit status is 1 if a session failed. With --full it runs what takes long in
place of the quick sessions, with KERAS_LN_CHECKS=all both in one go.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("jax", "torch", "tensorflow")
# The latter download more, or take a compiler or what the site is built with.
QUICK, FULL = ("style", "types", "wheel"), ("docs", "onnx")
COUNT = re.compile(r"(=+ )?\d+ (passed|failed|error)")


def nox(*arguments, **options):
    """A process of nox with these sessions."""
    command = [sys.executable, "-m", "nox"]
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, stderr=subprocess.STDOUT, **options
    )


def main(argv=None):
    """Run the sessions and report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--full",
        action="store_true",
        help="the site, ONNX, the CPU extension, and what takes long",
    )
    full = parser.parse_args(argv).full
    how = os.environ.get("KERAS_LN_CHECKS", "full" if full else "quick")
    others, suites = {
        "quick": (QUICK, SUITES),
        "full": (FULL, ("kernels", *SUITES)),
        # Here .ci/run has built the kernels by the time of their session.
        "all": (QUICK + FULL, ("jax", "torch", "kernels", "tensorflow")),
    }[how]
    count = ""
    with tempfile.TemporaryFile("w+") as said:
        beside = nox("-s", *others, stdout=said)
        tests = nox(
            *("-s", *suites, "--", how), stdout=subprocess.PIPE, text=True
        )
        for line in tests.stdout:
            print(line, end="", flush=True)
            count = line if COUNT.match(line) else count
        failed = [process.wait() for process in (tests, beside)]
        said.seek(0)
        print(said.read())
    print(count, end="")
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
