"""Figures of `search_analysis.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import plotting
from matplotlib import ticker
from search_analysis import BAND, SETTINGS, Study

CELLS = {
    "LSTM": ("lstm", "lstm_ln_outside", "lnlstm"),
    "GRU": ("gru", "gru_ln_outside", "lngru"),
}
STYLES = {
    kind: plotting.style_of(style)
    for kinds in CELLS.values()
    for kind, style in zip(kinds, ("none", "outside", "layer"), strict=True)
}
SMALL = {"frameon": False, "fontsize": "small"}
# The share of a task's runs that are its best.
GOOD = 0.25

Rows = Sequence[Mapping[str, Any]]


def _logarithmic(axis: Any, marks: Sequence[float]) -> None:
    """A logarithmic x axis with plain numbers at these marks of a decade."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=marks))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())


def forest(rows: Rows, path: Path) -> None:
    """A line per task and pair: the ratio of the test losses.

    On the left of 1 the layer that is normalised inside is better.
    """
    tasks = [*dict.fromkeys(row["task"] for row in rows)]
    bounds = [row[name] for row in rows for name in ("from", "to")]
    wide = max(bounds) - min(bounds) > np.log(30)
    limits = np.exp([min(bounds) - 0.1, max(bounds) + 0.1])
    size = (4.8 * len(CELLS), 1.4 + 0.45 * len(tasks))
    figure, axes = plotting.grid(1, len(CELLS), size)
    for axis, (cell, kinds) in zip(axes[0], CELLS.items(), strict=True):
        axis.axvspan(1 - BAND, 1 + BAND, color="0.9")
        axis.axvline(1, color="0.5", linewidth=0.8)
        for row in rows:
            if row["rival"] not in kinds:
                continue
            plain = row["rival"] == kinds[0]
            place = tasks.index(row["task"]) + (-0.14 if plain else 0.14)
            style = STYLES[row["rival"]]
            middle, *ends = np.exp(
                [row[name] for name in ("log ratio", "from", "to")]
            )
            axis.plot(ends, [place, place], color=style["color"])
            axis.plot(middle, place, style["marker"], color=style["color"])
        _logarithmic(axis, (1,) if wide else (1, 1.4, 2, 3, 5, 7))
        axis.set_xlim(*limits)
        axis.axhline(len(tasks) - 1.5, color="0.5", linewidth=0.8)
        names = [task.replace("_", " ") for task in tasks]
        axis.set_yticks(range(len(tasks)), names)
        axis.set_ylim(len(tasks) - 0.5, -0.5)
        axis.set_title(f"LN{cell}")
        axis.set_xlabel("test loss / that of the other (left is better)")
        labels = f"against {cell}", "against LayerNormalization outside"
        for kind, label in zip(kinds, labels, strict=False):
            axis.plot([], [], **STYLES[kind] | {"linestyle": "-"}, label=label)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12)}
        axis.legend(**SMALL, **below)
    plotting.save(figure, path)


def best_of_k(rows: Rows, path: Path) -> None:
    """The expected test loss of the best of k points, with bands."""
    tasks = [*dict.fromkeys(row["task"] for row in rows)]
    size = (4 * len(CELLS), 2.4 * len(tasks))
    figure, axes = plotting.grid(len(tasks), len(CELLS), size)
    for line, task in zip(axes, tasks, strict=True):
        for axis, (cell, kinds) in zip(line, CELLS.items(), strict=True):
            for kind in kinds:
                own = [
                    [row[name] for name in ("k", "test_loss", "from", "to")]
                    for row in rows
                    if (row["task"], row["kind"]) == (task, kind)
                ]
                if not own:
                    continue
                k, loss, low, high = zip(*own, strict=True)
                style = STYLES[kind]
                axis.plot(k, loss, label=kind, markersize=3, **style)
                axis.fill_between(k, low, high, color=style["color"], alpha=0.1)
            axis.set_yscale("log")
            axis.set_title(f"{task}, {cell}", fontsize="medium")
            axis.set_xlabel("points tried, k")
            if axis.lines:
                axis.legend(**SMALL)
        line[0].set_ylabel("test loss")
    plotting.save(figure, path)


def where(found: Study, path: Path) -> None:
    """How often a run with such a setting is in the best quarter of its task.

    A dot has a quarter of the points, whose settings are neighbours.
    """
    losses = found.columns["test_loss"]
    limits = np.quantile(losses, GOOD, axis=(1, 2))
    good = losses <= limits[:, None, None]
    columns = len(SETTINGS) + 1
    size = (3.2 * columns, 2.6 * len(CELLS))
    figure, axes = plotting.grid(len(CELLS), columns, size)
    for line, (cell, kinds) in zip(axes, CELLS.items(), strict=True):
        for kind in kinds:
            if kind not in found.kinds:
                continue
            own = good[:, found.kinds.index(kind)]
            style = {"label": kind, **STYLES[kind]}
            for axis, name in zip(line, SETTINGS, strict=False):
                values = found.of(kind, name)[0]
                parts = np.argsort(values).reshape(4, -1)
                x = [np.exp(np.log(values[part]).mean()) for part in parts]
                y = [own[:, part].mean() for part in parts]
                axis.plot(x, y, markersize=4, **style)
            long = np.isfinite(found.of(kind, "forget_steps")[0])
            shares = [own[:, ~long].mean(), own[:, long].mean()]
            line[-1].plot([0, 1], shares, **style)
        for axis, name in zip(line, (*SETTINGS, "biases"), strict=True):
            axis.set_ylim(0, 1)
            axis.set_xlabel(name.replace("_", " "))
            if name in SETTINGS:
                rate = name == "learning_rate"
                _logarithmic(axis, (1,) if rate else (1, 2, 5))
        line[-1].set_xticks([0, 1], ["usual", "log-uniform"])
        line[-1].set_xlim(-0.5, 1.5)
        line[0].set_ylabel(f"{cell}: share among the best", fontsize="small")
        if line[0].lines:
            line[0].legend(**SMALL)
    plotting.save(figure, path)


def draw(found: Study, compared: Rows, curves: Rows, folder: Path) -> None:
    """Draws all figures."""
    if compared:
        forest(compared, folder / "forest.png")
    best_of_k(curves, folder / "best_of_k.png")
    where(found, folder / "where.png")
