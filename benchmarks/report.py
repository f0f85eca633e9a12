"""Tables, CSV files and plots of the harness' measurements."""

import contextlib
import csv
import importlib.util
import operator
import os
import pathlib
import sys
import tempfile

from benchmarks.harness import MODES

RESULTS = pathlib.Path(__file__).parent / "results"
MEASUREMENT = ("op", "sizes", "mode")
KEY = (*MEASUREMENT, "provider")


def target(options, name, adds=False):
    """The files to write, without suffix.

    A smoke run does not touch earlier results. If the benchmark `adds` rows to
    a file, the file must have rows of measurements.
    """
    if options.output:
        if adds:
            earlier(file_of(options.output, ".csv"))
        return options.output
    if not options.smoke:
        return RESULTS / name
    folder = pathlib.Path(tempfile.mkdtemp(prefix="benchmarks-"))
    print(f"The results of this smoke run are in {folder}", flush=True)
    return folder / name


def file_of(output, suffix):
    """The file of the results `output`; it may be named with a suffix."""
    name = output.name.removesuffix(".csv").removesuffix(".png")
    return output.with_name(name + suffix)


def print_table(rows):
    """The rows, each with its ratio to our layer, the first of its mode."""
    for row in rows:
        ours = next(
            r
            for r in rows
            if (r["sizes"], r["mode"]) == (row["sizes"], row["mode"])
        )
        memory = row["peak_memory_mb"]
        print(
            f"{row['mode']:14} {row['provider']:34} {row['p50_ms']:9.2f} ms"
            f" ({row['p20_ms']:.2f} to {row['p80_ms']:.2f})"
            f"  ours/this {ours['p50_ms'] / row['p50_ms']:5.2f}"
            f"  first call {row['first_call_ms'] / 1e3:.1f} s"
            + (f"  {memory} MB" if memory != "" else ""),
            flush=True,
        )


def write(rows, path):
    """Writes `rows` and a plot; older rows of other measurements stay.

    Several runs can therefore measure different sizes and providers. Each row
    names its device and versions.
    """
    rows = add_to_csv(rows, file_of(path, ".csv"))
    if importlib.util.find_spec("matplotlib"):
        plot(rows, file_of(path, ".png"))


def earlier(path):
    """The rows of a file; `SystemExit` if they are no measurements."""
    if not path.exists():
        return []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        rows = [{}]
    if any(not {*KEY} <= {*row} or None in row.values() for row in rows):
        sys.exit(f"--output: {path} has other rows than measurements; move it")
    return rows


def add_to_csv(rows, path):
    """All rows of a file, in which `rows` take the place of older ones."""
    key = operator.itemgetter(*KEY)
    found = {key(row): row for row in (*earlier(path), *rows)}
    ordered = sorted(found.values(), key=operator.itemgetter(*MEASUREMENT))
    write_csv(ordered, path)
    return ordered


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
