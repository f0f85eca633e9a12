"""Which wrong lines of keras_ln the tests notice.

    python tests/mutate.py mutants.csv --count 40 --seed 0

Changes one operator or constant of `keras_ln/ops` or `keras_ln/layers` at a
time, in a copy of the repository, and runs the quick tests on torch, then on
TensorFlow and JAX, then the full ones, until some test fails. The table says
which run noticed first. A mutant that none noticed means the same as the
original, or lacks a test. Mutants that stand in the table already are not
tried again, so that a killed run goes on.
"""

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import run_all

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("keras_ln/ops", "keras_ln/layers")
SWAPPED = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
# Messages, annotations, and zip(strict=True), which guards against ourselves.
PASSED_OVER = (ast.Raise, ast.JoinedStr, ast.arg)
# In this order, the cheapest first, but before all the files named like the
# one that is changed. Examples use what these test.
CORE = [
    *("tests/ops", "tests/layers", "tests/test_goldens.py"),
    *("tests/test_conformance.py", "tests/compat", "tests/analysis"),
    *("tests/reliability", "tests/test_exports.py"),
    *("tests/test_training_modes.py", "tests/test_tuning.py"),
    *("tests/test_public_names.py", "tests/journeys"),
]
RUNS = [
    ("quick", "torch"),
    ("quick", "tensorflow"),
    ("quick", "jax"),
    ("full", "tensorflow"),
    ("full", "jax"),
]


def mutants(source):
    """Every mutant of a file, as (line, old, new, whole new source)."""
    found = []
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def offset(line, column):
        return starts[line - 1] + column

    def replace(begin, end, new):
        line = source.count("\n", 0, begin) + 1
        old = source[begin:end]
        changed = source[:begin] + new + source[end:]
        found.append((line, old, new, changed))

    def between(left, right, operator):
        old, new = SWAPPED[type(operator)]
        begin = offset(left.end_lineno, left.end_col_offset)
        end = offset(right.lineno, right.col_offset)
        place = source.find(old, begin, end)
        replace(place, place + len(old), new)

    def visit(node):
        guard = isinstance(node, ast.keyword) and node.arg == "strict"
        if guard or isinstance(node, PASSED_OVER):
            return
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
            between(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare):
            for left, operator, right in zip(
                [node.left, *node.comparators],
                node.ops,
                node.comparators,
                strict=False,
            ):
                between(left, right, operator)
        elif isinstance(node, ast.BoolOp):
            between(node.values[0], node.values[1], node.op)
        elif isinstance(node, ast.UnaryOp):
            begin = offset(node.lineno, node.col_offset)
            operand = node.operand
            end = offset(operand.lineno, operand.col_offset)
            replace(begin, end, "")
        elif isinstance(node, ast.Constant) and not isinstance(
            node.value, str | bytes | type(None) | type(...)
        ):
            begin = offset(node.lineno, node.col_offset)
            value = node.value
            new = not value if isinstance(value, bool) else value + 1
            replace(begin, offset(node.lineno, node.end_col_offset), str(new))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def chosen(count, seed):
    """Random mutants, of different lines: (file, line, old, new, source)."""
    every = [
        (file.relative_to(ROOT), *mutant)
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for mutant in mutants(file.read_text())
    ]
    random.Random(seed).shuffle(every)
    lines = {(file, line): (file, line, *rest) for file, line, *rest in every}
    return sorted([*lines.values()][:count])


def tests_for(file):
    """The files of CORE, those first that share words of their names."""
    words = set(file.stem.split("_"))
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
    arguments = run_all.pytest_arguments(full=kind == "full")
    tests = tests_for(file)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qx", *arguments, *tests],
        cwd=copy,
        env=os.environ | {"KERAS_BACKEND": backend, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        # Not even collected: noticed too, unless pytest was called wrongly.
        if "error" not in done.stdout.lower():
            raise SystemExit(done.stdout + done.stderr)
    return done.returncode != 0


def main(argv=None):
    """Writes the table; returns 0."""
    summary, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(description=summary, epilog=rest)
    parser.add_argument("table", help="the CSV file to write")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="leave out the full runs"
    )
    args = parser.parse_args(argv)
    runs = [run for run in RUNS if not (args.quick and run[0] == "full")]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build")
        )
        Path(args.table).touch()
        with open(args.table, "r+", newline="") as table:
            done = {tuple(row[:4]) for row in csv.reader(table)}
            writer = csv.writer(table)
            if not done:
                writer.writerow(("file", "line", "old", "new", "noticed_by"))
            for file, line, old, new, source in chosen(args.count, args.seed):
                if (str(file), str(line), old, new) in done:
                    continue
                original = (copy / file).read_text()
                (copy / file).write_text(source)
                by = (
                    " ".join(run) for run in runs if noticed(copy, file, *run)
                )
                row = (file, line, old, new, next(by, "none"))
                (copy / file).write_text(original)
                writer.writerow(row)
                table.flush()
                print(*row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
