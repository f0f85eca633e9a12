"""Figures of runs, comparisons and samples."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib import ticker

from common import files

matplotlib.use("Agg")

# The styles of kinds in all figures: Okabe and Ito's colours without yellow,
# which is pale on white, and dashes and markers for figures without colours.
_STYLES = {
    "none": ("#000000", "-", "s"),
    "layer": ("#0072B2", "-.", "d"),
    "batch": ("#009E73", "--", "o"),
    "weight": ("#CC79A7", ":", "^"),
    "layer-channels": ("#56B4E9", (0, (5, 1)), "D"),
    "batch-everywhere": ("#D55E00", (0, (3, 1, 1, 1)), "P"),
    "outside": ("#D55E00", "--", "o"),
    "symmetric": ("#E69F00", (0, (1, 1)), "v"),
    "gru": ("#999999", (0, (6, 1, 1, 1)), "<"),
    "lngru": ("#882255", (0, (2, 1)), ">"),
}
_SAME = {"lstm": "none", "lnlstm": "layer", "bnlstm": "batch"}


def style_of(kind: str) -> dict[str, Any]:
    """The colour, dash and marker of a kind."""
    color, linestyle, marker = _STYLES[_SAME.get(kind, kind)]
    return {"color": color, "linestyle": linestyle, "marker": marker}


def comparison(
    groups: Mapping[tuple, Sequence[Any]],
    column_name: Sequence[str],
    panels: Sequence[Any],
    path: Path,
    progress: str = "epoch",
    title: str = "",
) -> None:
    """Draws one row per panel, one column per value of the second key.

    Args:
        groups: from (kind, value, ...) to the runs of several seeds, of
            `report.Result`. A line is the median and the band the middle half
            of the finished ones, or of all if all diverged; the label counts
            the diverged ones. A kind with the value None is drawn in every
            column.
        column_name: the name of the value, if there is one.
        panels, path, progress, title: as for `report.draw`.
    """
    columns = list(dict.fromkeys(key[1:2] for key in groups))
    if len(columns) > 1:
        columns = [column for column in columns if column != (None,)]
    size = (1.5 + 4 * len(columns), 0.6 + 2.7 * len(panels))
    how = {"sharex": "col", "sharey": "row"}
    figure, axes = grid(len(panels), len(columns), size, **how)
    figure.suptitle(title, fontsize="medium", wrap=True)
    for key, runs in groups.items():
        finished = [run for run in runs if run.metrics is not None]
        histories = [run.rows for run in finished or runs]
        lost = len(runs) - len(finished)
        label = ", ".join(map(str, key[:1] + key[2:]))
        label += f" ({lost} of {len(runs)} diverged)" if lost else ""
        for column, axes_of_column in zip(columns, axes.T, strict=True):
            if key[1:2] not in (column, (None,)):
                continue
            for axis, panel in zip(axes_of_column, panels, strict=True):
                style = style_of(key[0])
                _line(axis, histories, panel, progress, label=label, **style)
    for row, panel in zip(axes, panels, strict=True):
        for axis in row:
            _label(axis, panel)
    for axis, column in zip(axes[0], columns, strict=True):
        if column:
            axis.set_title(f"{column_name[0].replace('_', ' ')} {column[0]}")
    for axis in axes[-1]:
        axis.set_xlabel(progress)
        axis.xaxis.get_major_locator().set_params(integer=True)
    several = any(len(runs) > 1 for runs in groups.values())
    explain(
        figure, axes, "median, middle half" if several else "by normalisation"
    )
    save(figure, path)


def grid(rows: int, columns: int, size: Sequence[float], **how: Any) -> Any:
    """A figure, and its axes (rows, columns)."""
    how |= {"squeeze": False, "layout": "constrained"}
    return plt.subplots(rows, columns, figsize=size, **how)


def explain(figure, axes, title: str) -> None:
    """A legend below the figure, with as many columns as fit."""
    shown = {}
    for axis in axes.flat:
        handles, labels = axis.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    longest = max(map(len, shown))
    figure.legend(
        *(shown.values(), shown.keys()),
        loc="outside lower center",
        ncols=max(1, int(7 * figure.get_figwidth() / (longest + 7))),
        frameon=False,
        title=title,
    )


def canvases(pictures: np.ndarray, path: Path) -> None:
    """Draws canvases (N, glimpses, H, W) from 0 (white) to 1, N rows."""
    # As many columns as one can tell apart.
    glimpses = pictures.shape[1]
    columns = np.linspace(0, glimpses - 1, min(12, glimpses)).round()
    columns = columns.astype(int)
    rows = len(pictures)
    size = (0.5 + 0.7 * len(columns), 0.5 + 0.7 * rows)
    figure, axes = grid(rows, len(columns), size)
    for row, own in zip(axes, pictures, strict=True):
        for axis, column in zip(row, columns, strict=True):
            axis.imshow(own[column], cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
    for axis, column in zip(axes[-1], columns, strict=True):
        axis.set_xlabel(str(column + 1))
    figure.supxlabel("canvas after this many glimpses", fontsize="medium")
    save(figure, path)


def handwriting(ways: Sequence[Any], texts: Sequence[str], path: Path) -> None:
    """Draws handwritten texts, one below the other."""
    figure, axes = grid(len(ways), 1, (7, 1.3 * len(ways)))
    for axis, way, text in zip(axes[:, 0], ways, texts, strict=True):
        points = way[:, :2].cumsum(axis=0)
        ends = np.flatnonzero(way[:-1, 2])
        for stroke in np.split(points, ends + 1):
            axis.plot(*stroke.T, "k-", lw=1.2)
        axis.set_title(text, loc="left", fontsize="small", color="0.5")
        axis.set_aspect("equal", adjustable="datalim")
        axis.axis("off")
    save(figure, path)


def _line(axis, histories, panel, progress: str, **style: Any) -> None:
    """The median of several seeds and their middle half."""
    steps = list(zip(*histories, strict=False))  # Up to the shortest.
    x = [step[0][progress] for step in steps]
    values = [[panel.of(row) for row in step] for step in steps]
    # Without any evaluation there is nothing to draw.
    quarters = np.percentile(values, (25, 50, 75), axis=1) if x else ((),) * 3
    low, middle, high = quarters
    axis.plot(x, middle, ms=4, markevery=max(1, len(x) // 8), **style)
    if len(histories) > 1:
        axis.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)


def _label(axis, panel: Any) -> None:
    axis.set_ylabel(panel.label)
    axis.label_outer()
    tidy(axis)
    if not math.isfinite(axis.dataLim.width):
        place = {"transform": axis.transAxes, "ha": "center"}
        axis.text(0.5, 0.5, "no finite values", **place)
    # There is no such scale without a positive value (if all runs diverged).
    if panel.log and math.isfinite(axis.dataLim.minposy):
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        if high < 1000 * low:  # Powers of ten would be few labels.
            few = ticker.LogLocator(subs=(1, 2, 5))
            axis.yaxis.set_major_locator(
                few if high > 5 * low else ticker.MaxNLocator(5)
            )
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def tidy(axis) -> None:
    """A pale grid, and no frame on the right and above."""
    axis.grid(alpha=0.3, lw=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def save(figure, path: Path, dpi: int = 150) -> None:
    """Writes a whole figure and closes it."""
    with files.replacing(path) as partial:
        figure.savefig(partial, dpi=dpi)
    plt.close(figure)
