"""Which wrong lines of keras_ln the tests notice.

    python tests/mutate.py mutants.csv --count 300 --seed 0

Changes one operator or constant of `keras_ln/ops`, `keras_ln/layers` or
`keras_ln/backend` at a time, in a copy of the repository, and runs the quick
tests on torch, then on TensorFlow and JAX, then the full ones, until some test
fails. A backend's own file is tried on that backend alone; the files that call
the CPU kernels need those installed. Each file has its share of the mutants.
The table says which run noticed first. A mutant that none noticed means the
same as the original, or lacks a test. Mutants that stand in the table already
are not tried again, so that a killed run goes on.

    python tests/mutate.py later.csv --like mutants.csv

tries the mutants of an earlier table in code that has been moved since: the
same change of an equal line, in the same file and function if it stands there.
"""

import argparse
import concurrent.futures
import csv
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run_all
from mutants import ROOT, Mutant, chosen, moved

# A run that takes longer hangs, which is noticed too.
SECONDS = 3600
# In this order, the cheapest first, but before all the files named like the
# one that is changed. Examples use what these test.
CORE = [
    *("tests/backend", "tests/ops", "tests/layers", "tests/test_goldens.py"),
    *("tests/test_conformance.py", "tests/test_mixed_precision.py"),
    *("tests/compat", "tests/analysis"),
    *("tests/reliability", "tests/test_exports.py"),
    *("tests/test_training_modes.py", "tests/test_tuning.py"),
    *("tests/test_public_names.py", "tests/journeys"),
]
BACKENDS = ("torch", "tensorflow", "jax")


def runs_for(file, quick):
    """The runs that a mutant of the file is tried on, as (kind, backend)."""
    of_one = [name for name in BACKENDS if name in file]
    backends = of_one or BACKENDS
    compiling = [name for name in backends if name != "torch"]
    full = [] if quick else [("full", name) for name in compiling]
    return [*(("quick", name) for name in backends), *full]


def tests_for(file):
    """The files of CORE, those first that share words of their names."""
    words = set(Path(file).stem.split("_"))
    tests = [
        test
        for place in map(ROOT.joinpath, CORE)
        for test in (sorted(place.rglob("test_*.py")) or [place])
    ]
    shared = {test: len(words & set(test.stem.split("_"))) for test in tests}
    tests.sort(key=shared.get, reverse=True)
    return [str(test.relative_to(ROOT)) for test in tests]


def noticed(copy, file, kind, backend):
    """Whether the tests of a run fail on the copy, in which `file` is wrong."""
    arguments = run_all.pytest_arguments(backend, full=kind == "full")
    if "native" in file:
        arguments.append("--kernels")
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-qx", "-n", "0"),
                *(*arguments, *tests_for(file)),
            ],
            cwd=copy,
            env=os.environ
            | {"KERAS_BACKEND": backend, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1):
        # Not even collected: noticed too, unless pytest was called wrongly.
        if "error" not in done.stdout.lower():
            raise SystemExit(done.stdout + done.stderr)
    return done.returncode != 0


def tried(mutant, copies, quick):
    """Its row of the table, by the first run that notices it."""
    copy = copies.pop()
    file = copy / mutant.file
    original = file.read_text()
    file.write_text(mutant.source)
    try:
        runs = runs_for(mutant.file, quick)
        by = (" ".join(run) for run in runs if noticed(copy, mutant.file, *run))
        return (*mutant[:6], next(by, "none"))
    finally:
        file.write_text(original)
        copies.append(copy)


def main(argv=None):
    """Writes the table; returns 0."""
    summary, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", help="the CSV file to write")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--like", metavar="TABLE", help="an earlier table")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--quick", action="store_true", help="leave out the full runs"
    )
    args = parser.parse_args(argv)
    wanted, gone = chosen(args.count, args.seed), []
    if args.like:
        wanted, gone = moved(args.like)
    for place in gone:
        print("gone:", *place)
    Path(args.table).touch()
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(args.jobs) as pool,
        open(args.table, "r+", newline="") as table,
    ):
        copies = [Path(folder, str(job)) for job in range(args.jobs)]
        for copy in copies:
            left_out = shutil.ignore_patterns(".*", "runs", "build")
            shutil.copytree(ROOT, copy, ignore=left_out)
        rows = [tuple(row) for row in csv.reader(table)]
        done = {(row[0], *row[2:6]) for row in rows}
        writer = csv.writer(table)
        if not rows:
            writer.writerow((*Mutant._fields[:6], "noticed_by"))
        left = [mutant for mutant in wanted if mutant.place not in done]
        trials = [
            pool.submit(tried, mutant, copies, args.quick) for mutant in left
        ]
        for trial in concurrent.futures.as_completed(trials):
            writer.writerow(trial.result())
            table.flush()
            print(*trial.result(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
