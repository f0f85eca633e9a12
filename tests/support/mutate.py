"""Which wrong lines the tests notice.

    PYTHONPATH=tests python tests/support/mutate.py mutants.csv --seed 0

Changes one operator or constant at a time, in a copy of the repository, and
runs the tests that execute its line: the quick ones on torch, then on
TensorFlow and JAX, then the full ones, until some test fails. A backend's own
file is tried on that backend alone; the files that call the CPU extension need
those installed. `mutants.STRATA` says how many are drawn from the package, its
compatibility modules, the benchmarks, the examples and their readers of data;
each file has its share. The table says which run noticed first. A mutant that
none noticed means the same as the original, or lacks a test.
Mutants that stand in the table already are not tried again, so that a killed
run goes on.

Before the first mutant of a run all its tests run once, to learn the lines
that they execute; `mutants.quick-torch.json` and the like, beside the table,
keep them: delete these after a change of code or tests. Lines that only
subprocesses execute are not seen. Where only an import executes a line, such as
a default, the tests of its function are taken, or else those of its file. The
reason why no run noticed a mutant is added to the table by hand.

    PYTHONPATH=tests python tests/support/mutate.py later.csv --like mutants.csv

tries the mutants of an earlier table in code that has been moved since: the
same change of an equal line, in the same file and function if it stands there.

    ... mutate.py noticed.csv --like mutants.csv --tests PATH ...

lists all tests of those files that notice each mutant, on torch: one row for
each mutant and test. Before a test is deleted, its replacement must notice what
it noticed.
"""

import argparse
import concurrent.futures
import contextlib
import csv
import importlib
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import running
from mutants import ROOT, STRATA, Mutant, chosen, functions, moved, stratum

# A run that takes longer hangs, which is noticed too.
SECONDS = 1800
# So many of the quickest tests come first: less is imported for them.
FIRST = 20
# What has the tests of a stratum; examples use what those of the package test.
CORE = [
    *("tests/conformance", "tests/contract", "tests/convert", "tests/engine"),
    *("tests/exports", "tests/kernels", "tests/compat", "tests/analysis"),
    "tests/reliability",
]
EXAMPLES = ["tests/examples", "tests/docs"]
TESTS = {
    "package": CORE,
    "compat": ["tests/compat", "tests/analysis/test_tuning.py", "tests/docs"],
    "benchmarks": ["tests/benchmarks", "tests/docs"],
    "examples": EXAMPLES,
    "datasets": EXAMPLES,
}
BACKENDS = ("torch", "tensorflow", "jax")
FORK = multiprocessing.get_context("fork")


class Lines:
    """A plugin of pytest that notes which lines each test executes."""

    def __init__(self):
        import coverage

        self.seconds = {}
        places = itertools.chain(*(places for places, _ in STRATA.values()))
        self.coverage = coverage.Coverage(
            None,
            config_file=False,
            include=[f"{place}/*".replace(".py/*", ".py") for place in places],
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Times the test and names it; JAX has to trace everything anew."""
        if os.environ["KERAS_BACKEND"] == "jax":
            sys.modules["jax"].clear_caches()
        self.coverage.switch_context(item.nodeid)
        start = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - start

    def write(self, path):
        """The tests, the quickest first, and their numbers by file and line."""
        self.coverage.stop()
        data = self.coverage.get_data()
        tests = sorted(self.seconds, key=self.seconds.get)
        numbers = {test: number for number, test in enumerate(tests)}
        lines = {
            os.path.relpath(file): {
                line: sorted(numbers[test] for test in found if test)
                for line, found in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        Path(path).write_text(json.dumps({"tests": tests, "lines": lines}))


def prepare(backend, folder):
    """Makes a process that others are forked from, in a copy of its own.

    It has imported what takes seconds, but nothing of the package.
    """
    copy = tempfile.mkdtemp(dir=folder)
    left_out = shutil.ignore_patterns(".*", "runs", "build")
    shutil.copytree(ROOT, copy, ignore=left_out, dirs_exist_ok=True)
    os.chdir(copy)
    os.environ.update(
        KERAS_BACKEND=backend, PYTHONPATH=copy, COVERAGE_CORE="ctrace"
    )
    # Two modules of one second and size would share their bytecode.
    sys.dont_write_bytecode = True
    sys.path[:0] = [copy, f"{copy}/tests", f"{copy}/tests/support"]
    # The first one makes settings that the others read.
    for name in ("conftest", backend, "keras", "hypothesis", "scipy"):
        importlib.import_module(name)


def _run(arguments, lines):
    os.setsid()
    with open("output.txt", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    plugin = Lines() if lines else None
    status = pytest.main(arguments, [plugin] if plugin else None)
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        status = 0  # A backend may have none.
    if plugin and not status:
        plugin.write(lines)
    sys.stdout.flush()
    os._exit(status)  # Threads of a framework may not end.


def run(arguments, lines=None):
    """What fails of the tests: lines of a run, or [] if none does.

    With `lines`, a path, the tests' lines are written there.
    """
    arguments = ["-q", "-n0", "-pno:cacheprovider", *arguments]
    arguments.append(f"--basetemp={os.getcwd()}/build")
    child = FORK.Process(target=_run, args=(arguments, lines))
    child.start()
    child.join(None if lines else SECONDS)
    if child.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
        return ["hangs"]
    if not child.exitcode:
        return []
    output = Path("output.txt").read_text(errors="replace").splitlines()
    failed = [line for line in output if line.startswith(("FAILED", "ERROR"))]
    return failed or [" ".join([f"exit {child.exitcode}", *output[-1:]])]


@contextlib.contextmanager
def written(mutant):
    """The copy of the repository has the wrong line."""
    file = Path(mutant.file)
    original = file.read_text()
    file.write_text(mutant.source)
    try:
        yield
    finally:
        file.write_text(original)


def tried(mutant, options, tests):
    """What fails first of the tests, or ""."""
    with written(mutant):
        parts = filter(None, (tests[:FIRST], tests[FIRST:]))
        failed = (run(["-x", *options, *part]) for part in parts)
        return next(filter(None, failed), [""])[-1]


def noticing(mutant, options, tests):
    """The names of all tests that fail, or what else a run ends with."""
    with written(mutant):
        failed = run(options + tests) if tests else []
    words = (line.partition(" - ")[0].partition(" ") for line in failed)
    return [
        rest if kind in ("FAILED", "ERROR") else f"{kind} {rest}"
        for kind, _, rest in words
    ]


def tests_of(mutant, executed):
    """The tests that execute its line, or its function, or its file."""
    lines = {
        int(line): tests
        for line, tests in executed["lines"].get(mutant.file, {}).items()
    }
    names = functions((ROOT / mutant.file).read_text())
    tests = [
        {test for line in lines if keep(line) for test in lines[line]}
        for keep in (
            lambda line: not names[line],
            lambda line: line == mutant.line,
            lambda line: names[line] == mutant.function,
            lambda line: True,
        )
    ]
    # A test that imports the file executes its defaults, and uses none.
    importing = tests.pop(0)
    found = next((some for some in tests if some - importing), tests[-1])
    return [executed["tests"][number] for number in sorted(found)]


def runs(quick):
    """Runs as (kind, backend, with kernels), the cheapest first."""
    yield from itertools.product(["quick"], BACKENDS, (False, True))
    if not quick:
        yield from itertools.product(["full"], BACKENDS, [False])


def concerns(mutant, backend, kernels):
    """Whether a mutant is tried on the backend, with or without kernels."""
    file = mutant.file if "/backend/" in mutant.file else ""
    of_one = [name for name in BACKENDS if name in file]
    return backend in (of_one or BACKENDS) and kernels == (
        "native" in mutant.file and stratum(mutant.file) == "package"
    )


def options_of(backend, duration, kernels=False):
    """The arguments of pytest for a run."""
    options = running.pytest_arguments(backend, duration)
    return options + (["--kernels"] if kernels else [])


def executed_by(pool, parser, options, paths, lines):
    """The tests and the lines that each executes, from a file or a run."""
    if not lines.exists():
        if failed := pool.submit(run, ["-x", *options, *paths], lines).result():
            parser.exit(1, f"without a mutant: {failed[-1]}\n")
    return json.loads(lines.read_text())


def every_notice(wanted, path, args, parser):
    """Writes one row for each mutant and each test of the paths that fails."""
    with open(path, newline="") as table:
        rows = [tuple(row) for row in csv.reader(table)]
    done = {(row[0], *row[2:6]) for row in rows}
    options = options_of("torch", "not full" if args.quick else "")
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ProcessPoolExecutor(
            args.jobs, FORK, prepare, ("torch", folder)
        ) as pool,
        open(path, "a", newline="") as table,
    ):
        executed = executed_by(
            pool, parser, options, args.tests, path.with_suffix(".json")
        )
        writer = csv.writer(table)
        if not rows:
            writer.writerow((*Mutant._fields[:6], "noticed_by"))
        trials = {
            pool.submit(noticing, m, options, tests_of(m, executed)): m
            for m in wanted
            if m.place not in done
        }
        for trial in concurrent.futures.as_completed(trials):
            mutant, names = trials[trial], trial.result()
            writer.writerows((*mutant[:6], name) for name in names or [""])
            table.flush()
            print(*mutant[:6], len(names), flush=True)


def main(argv=None):
    """Writes the table; returns 0."""
    summary, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", help="the CSV file to write")
    parser.add_argument(
        "--strata",
        nargs="+",
        choices=STRATA,
        default=[*STRATA],
        help="of these alone",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--like", metavar="TABLE", help="an earlier table")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="see below")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--quick", action="store_true", help="leave out the full runs"
    )
    args = parser.parse_args(argv)
    gone = []
    if args.like:
        wanted, gone = moved(args.like)
        wanted = [m for m in wanted if stratum(m.file) in args.strata]
    else:
        wanted = [
            mutant
            for name in args.strata
            for mutant in chosen(name, STRATA[name][1], args.seed)
        ]
    for place in gone:
        print("gone:", *place)
    path = Path(args.table).resolve()
    path.touch()
    if args.tests:
        every_notice(wanted, path, args, parser)
        return 0
    with (
        tempfile.TemporaryDirectory() as folder,
        open(path, "r+", newline="") as table,
    ):
        rows = [tuple(row) for row in csv.reader(table)]
        done = {(row[0], *row[2:6]) for row in rows}
        writer = csv.writer(table)
        if not rows:
            writer.writerow((*Mutant._fields[:6], "noticed_by"))

        def note(mutant, by, failed):
            writer.writerow((*mutant[:6], by))
            table.flush()
            print(*mutant[:6], by, failed, flush=True)

        left = [mutant for mutant in wanted if mutant.place not in done]
        every = itertools.product(runs(args.quick), TESTS.items())
        for (kind, backend, kernels), (name, paths) in every:
            mutants = [
                m
                for m in left
                if stratum(m.file) == name and concerns(m, backend, kernels)
            ]
            if not mutants:
                continue
            duration = "full" if kind == "full" else "not full"
            # As noxfile.py has it, whatever they take.
            options = options_of(backend, "" if kernels else duration, kernels)
            with concurrent.futures.ProcessPoolExecutor(
                args.jobs, FORK, prepare, (backend, folder)
            ) as pool:
                suffix = "-kernels" if kernels else ""
                if kernels:
                    paths = [f"tests/{part}" for part in running.RUN_ON_KERNELS]
                suffix = f".{kind}-{backend}{suffix}.{name}.json"
                lines = path.with_suffix(suffix)
                executed = executed_by(pool, parser, options, paths, lines)
                trials = {
                    pool.submit(
                        tried, m, options, tests_of(m, executed) or paths
                    ): m
                    for m in mutants
                }
                for trial in concurrent.futures.as_completed(trials):
                    if failed := trial.result():
                        by = f"{kind} {backend}"
                        by += ", hangs" if failed == "hangs" else ""
                        note(trials[trial], by, failed)
                        left.remove(trials[trial])
        for mutant in left:
            note(mutant, "none", "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
