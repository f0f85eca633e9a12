"""Draws figures of the README and of Speed: python docs/figures.py."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tables import BACKENDS, SIZES, machine, over_keras

HERE = Path(__file__).resolve().parent
DESCRIPTIONS = {
    "A": "A: batch 128, 64 steps, 256 → 256 units",
    "B": "B: batch 64, 100 steps, 512 → 512 units",
    "C": "C: batch 8, 500 steps, 3 → 400 units",
    "D": "D: batch 64, 30 steps, 620 → 2,400 units",
    "S": "batch of 1, 200 steps, 64 → 128 units",
}
TICKS = (0.1, 0.2, 0.5, 1, 2, 4)
# Of the cell's figure: what a box holds, and where its middle is.
BOXES = {
    "x": ("$x_t$", 0.3, 2.6),
    "h": ("$h_{t-1}$", 0.3, 1.2),
    "W": ("$x_t W$", 1.6, 2.6),
    "R": ("$h_{t-1} R$", 1.6, 1.2),
    "kernel": ('normalise\n"kernel"', 3.2, 2.6),
    "recurrent": ('normalise\n"recurrent"', 3.2, 1.2),
    "gates": ("sum, bias:\ngates $i, f, o$\ncandidate $g$", 5.1, 1.9),
    "c": ("$c_t = f c_{t-1} + i g$", 7.4, 2.6),
    "state": ('normalise\n"state"', 7.4, 1.2),
    "out": ("$h_t$", 9.5, 1.2),
    "next": ("next step", 9.5, 2.6),
}
ARROWS = (
    *(("x", "W"), ("h", "R"), ("W", "kernel"), ("R", "recurrent")),
    *(("kernel", "gates"), ("recurrent", "gates"), ("gates", "c")),
    *(("c", "state"), ("state", "out"), ("c", "next")),
)


def draw_cell(path):
    """The equations of LNLSTM's cell as boxes, normalisations in colour."""
    figure, axes = plt.subplots(figsize=(7.5, 2.3), layout="constrained")
    axes.set(xlim=(-0.2, 10.2), ylim=(0.5, 3.2))
    axes.axis("off")
    patches = {}
    for name, (text, x, y) in BOXES.items():
        colour = "#ffd27f" if text.startswith("norm") else "#e8eef4"
        box = {"boxstyle": "round,pad=0.4", "fc": colour, "ec": "#444444"}
        shown = axes.text(x, y, text, ha="center", va="center", bbox=box)
        patches[name] = shown.get_bbox_patch()
    for start, end in ARROWS:
        ends = {"patchA": patches[start], "patchB": patches[end]}
        arrow = {"arrowstyle": "->", "shrinkA": 0, "shrinkB": 0, **ends}
        axes.annotate("", BOXES[end][1:], BOXES[start][1:], arrowprops=arrow)
    axes.text(8.55, 1.35, "tanh, $o$", ha="center", size=9)
    figure.savefig(path, dpi=150, facecolor="white")


def draw(path):
    """A point per size, with the kernels and without; a panel per framework."""
    figure, panels = plt.subplots(
        3, 1, figsize=(7, 7.5), sharex=True, sharey=True, layout="constrained"
    )
    places = np.arange(len(SIZES))
    points = {"with the CPU extension": "o", "without": "s"}
    for panel, (backend, title) in zip(panels, BACKENDS.items(), strict=True):
        for (label, marker), above in zip(
            points.items(), (0.2, -0.2), strict=True
        ):
            if (backend, label) == ("torch", "without"):
                continue  # Measured on another machine (docs/speed.md).
            values = over_keras(backend, label != "without")
            fill = {} if label != "without" else {"mfc": "white"}
            panel.plot(values, places - above, marker, label=label, **fill)
            for value, place in zip(values, places - above, strict=True):
                panel.annotate(
                    f"{value:.2f}",
                    (value, place),
                    xytext=(7, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize="small",
                )
        panel.axvline(1, color="grey", linewidth=1, zorder=0)
        panel.set_title(title, loc="left", fontweight="bold")
        panel.set_yticks(places, [DESCRIPTIONS[size] for size in SIZES])
        panel.set_ylim(len(SIZES) - 0.4, -0.6)
        panel.set_xscale("log")
        panel.set_xlim(0.08, 6)
        panel.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.minorticks_off()
        panel.grid(axis="x", alpha=0.3)
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel(
        "time of a training step of LNLSTM / of keras.layers.LSTM\n"
        f"(lower is better; {machine()})"
    )
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        ncols=2,
        loc="outside upper center",
        frameon=False,
    )
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(HERE / "figures" / "speed.png")
    draw_cell(HERE / "figures" / "cell.png")
