"""Draws the site's figure of times: python docs/figures.py."""

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


def draw(path):
    """A point per size, with the kernels and without; a panel per framework."""
    figure, panels = plt.subplots(
        3, 1, figsize=(7, 7.5), sharex=True, sharey=True, layout="constrained"
    )
    places = np.arange(len(SIZES))
    points = {"with the C++ kernels": "o", "without": "s"}
    for panel, (backend, title) in zip(panels, BACKENDS.items(), strict=True):
        for (label, marker), above in zip(
            points.items(), (0.2, -0.2), strict=True
        ):
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
