"""Wrong lines, one operator or constant changed in each.

`tests/support/mutate.py` tries which of them the tests notice.
"""

import ast
import csv
import random
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Of each of these so many are drawn; a file is in the last one that has it.
STRATA = {
    "package": (
        tuple(
            f"keras_ln/{part}"
            for part in ("backend", "convert", "engine", "layers", "ops")
        ),
        300,
    ),
    "compat": (("keras_ln/compat", "keras_ln/tuning.py"), 20),
    "benchmarks": (("benchmarks",), 16),
    "examples": (("examples",), 49),
    "datasets": (("examples/common/datasets",), 35),
}
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


class Mutant(NamedTuple):
    """A wrong line: a row of the table, before it is tried."""

    file: str
    line: int
    function: str
    text: str  # the line as it is right, stripped
    old: str
    new: str
    source: str = ""  # of the whole file, wrong

    @property
    def place(self):
        """What stays when lines are moved."""
        return (self.file, self.function, self.text, self.old, self.new)


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
            operator = "not " if isinstance(node.op, ast.Not) else "-"
            replace(begin, begin + len(operator), "")
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


def functions(source):
    """The qualified name of the function or class around each line."""
    names = [""] * (source.count("\n") + 2)

    def visit(node, outer):
        for child in ast.iter_child_nodes(node):
            inner = outer
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{outer}.{child.name}".lstrip(".")
                for line in range(child.lineno, child.end_lineno + 1):
                    names[line] = inner
            visit(child, inner)

    visit(ast.parse(source), "")
    return names


def every_mutant():
    """Those of every file, one for each line, by file; in random order."""
    found = {}
    places = [place for places, _ in STRATA.values() for place in places]
    for place in map(ROOT.joinpath, places):
        for path in sorted(place.rglob("*.py")) or [place]:
            file, source = str(path.relative_to(ROOT)), path.read_text()
            lines, names = source.splitlines(), functions(source)
            found[file] = [
                Mutant(
                    file, line, names[line], lines[line - 1].strip(), *change
                )
                for line, *change in mutants(source)
            ]
    return found


def stratum(file):
    """The name of the stratum that a file is in."""
    found = [
        name for name, (places, _) in STRATA.items() if file.startswith(places)
    ]
    return found[-1]


def chosen(name, count, seed):
    """Random mutants of different lines, from every file its share."""
    shuffle = random.Random(seed).shuffle
    by_file = {}
    for file, found in every_mutant().items():
        if stratum(file) != name:
            continue
        shuffle(found)
        lines = {mutant.line: mutant for mutant in found}
        by_file[file] = list(lines.values())
    total = sum(map(len, by_file.values()))
    # Whole shares first, one at least, then the largest remainders.
    shares = {f: len(found) * count / total for f, found in by_file.items()}
    counts = {
        f: min(len(by_file[f]), max(1, int(share)))
        for f, share in shares.items()
    }
    by_remainder = sorted(shares, key=lambda f: counts[f] - shares[f])
    for file in by_remainder[: max(0, count - sum(counts.values()))]:
        counts[file] = min(counts[file] + 1, len(by_file[file]))
    return sorted(m for f, n in counts.items() for m in by_file[f][:n])


def moved(table):
    """The mutants of an earlier table where they stand now, and those gone."""
    known = {}
    for mutant in sum(every_mutant().values(), []):
        # The nearest place wins, so the exact ones come last.
        for place in (mutant.place[2:], mutant.place[1:], mutant.place):
            known.setdefault(place, mutant)
    found, gone = [], []
    with open(table, newline="") as file:
        for row in csv.DictReader(file):
            place = tuple(row[name] for name in Mutant._fields[:6])
            place = (place[0], *place[2:])
            places = (place, place[1:], place[2:])
            hits = [known[place] for place in places if place in known]
            found += hits[:1]
            gone += [] if hits else [place]
    return sorted(set(found)), gone
