"""Tables, CSV files and plots of the harness' measurements."""

import contextlib
import csv
import importlib.util
import operator
import os
import pathlib
import sys
import tempfile

from benchmarks.harness import MODES, ROOT

# The times that pages read, and what RELIABILITY.md has.
SPEED = ROOT / "docs" / "data" / "speed.csv"
RESULTS = ROOT / "benchmarks" / "results"
MEASUREMENT = ("run", "op", "sizes", "mode")
KEY = (*MEASUREMENT, "provider")


def target(options, path=SPEED, key=KEY):
    """The file to add rows to; its rows must have the columns of the key.

    A smoke run does not touch earlier results.
    """
    if options.output:
        path = options.output
    elif options.smoke:
        path = pathlib.Path(tempfile.mkdtemp(prefix="benchmarks-"), path.name)
        print(f"The results of this smoke run are in {path}", flush=True)
    earlier(path, key)
    return path


def print_table(rows):
    """The rows, each with its ratio to our layer, the first of its mode."""
    for row in rows:
        ours = next(
            r
            for r in rows
            if (r["sizes"], r["mode"]) == (row["sizes"], row["mode"])
        )
        print(
            f"{row['mode']:14} {row['provider']:34} {row['p50_ms']:9.2f} ms"
            f" ({row['p20_ms']:.2f} to {row['p80_ms']:.2f})"
            f"  ours/this {ours['p50_ms'] / row['p50_ms']:5.2f}"
            f"  first call {row['first_call_ms'] / 1e3:.1f} s",
            flush=True,
        )


def write(rows, run, path):
    """Adds the times of a run to a file, and plots all times of that run."""
    rows = [row for row in add(rows, run, path) if row["run"] == run]
    if importlib.util.find_spec("matplotlib"):
        folder = RESULTS if path == SPEED else path.parent
        plot(rows, folder / f"{run}.png")


def add(rows, run, path, key=KEY):
    """All rows of a file, in which those of `run` replace older ones.

    Several runs can therefore measure different sizes and providers. Each row
    names its device and versions.
    """
    of = operator.itemgetter(*key)
    rows = [{"run": run} | row for row in rows]
    found = {of(row): row for row in (*earlier(path, key), *rows)}
    order = operator.itemgetter(*(MEASUREMENT if key == KEY else ("run",)))
    ordered = sorted(found.values(), key=order)
    write_csv(ordered, path)
    return ordered


def earlier(path, key):
    """The rows of a file; `SystemExit` if they lack columns of the key."""
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        rows = [{}]
    if any(not {*key} <= {*row} or None in row.values() for row in rows):
        sys.exit(f"--output: {path} has other rows than measurements; move it")
    return rows


def write_csv(rows, path):
    """Writes rows, whose keys are the columns, and the folder."""
    columns = dict.fromkeys(name for row in rows for name in row)
    with whole(path) as part, open(part, "w", newline="") as file:
        writer = csv.DictWriter(file, [*columns], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@contextlib.contextmanager
def whole(path):
    """A file beside `path`, which takes its place once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save(figure, path, **options):
    """Draws a figure of matplotlib into a file."""
    with whole(path) as part:
        figure.savefig(part, **options)


def plot(rows, path):
    """Bars of the medians: a row of panels per op and size, one per mode."""
    from matplotlib.figure import Figure

    lines = panels_of(rows)
    most = max(len(own) for modes in lines.values() for own in modes.values())
    figure = Figure(
        figsize=(13, len(lines) * (0.8 + 0.28 * most)), layout="constrained"
    )
    grid = figure.subplots(len(lines), len(MODES), squeeze=False)
    for panels, (name, modes) in zip(grid, lines.items(), strict=True):
        for panel, (mode, own) in zip(panels, modes.items(), strict=True):
            bars = panel.barh(
                [row["provider"] for row in own],
                [float(row["p50_ms"]) for row in own],
                color=[
                    "tab:blue"
                    if r["provider"].startswith("keras_ln")
                    else "0.7"
                    for r in own
                ],
            )
            panel.bar_label(bars, fmt="{:,.4g}", padding=2)
            panel.margins(x=0.2)
            panel.invert_yaxis()
            panel.set(xlabel="ms (median)")
            panel.set_title(f"{name}, {mode}", loc="right", fontsize="small")
    save(figure, path)


def panels_of(rows):
    """{op and size: {mode: rows}}, in the order of the rows."""
    found = {}
    for row in rows:
        name = f"{row['op']} {row['sizes']}"
        modes = found.setdefault(name, {mode: [] for mode in MODES})
        modes[row["mode"]].append(row)
    return found
