"""Draws the site's figures from benchmarks/results: python docs/figures.py."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
SIZES = ("A", "B", "C", "1x200x64x128")
LABELS = ("A", "B", "C", "batch of one")
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}


def shares(backend, kernels):
    """Time of LNLSTM over that of a plain LSTM in its faster mode, by size."""
    with open(RESULTS / f"sequence_layers_{backend}.csv") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["op"], row["mode"]) == ("LNLSTM", "training step")
            and "every step" not in row["sizes"]
        ]
    found = []
    for size in SIZES:
        times = {
            row["provider"]: float(row["p50_ms"])
            for row in rows
            if row["sizes"].split()[0] == size
        }
        ours = "keras_ln (kernels)," if kernels else "keras_ln,"
        (own,) = (t for name, t in times.items() if name.startswith(ours))
        plain = [t for n, t in times.items() if n.startswith("keras LSTM")]
        found.append(own / min(plain))
    return found


def draw(path):
    """Bars by size, a panel per framework."""
    figure, panels = plt.subplots(
        1, 3, figsize=(9, 2.8), sharey=True, layout="constrained"
    )
    places = np.arange(len(SIZES))
    for panel, (backend, title) in zip(panels, BACKENDS.items(), strict=True):
        for shift, kernels in ((-0.2, True), (0.2, False)):
            values = shares(backend, kernels)
            label = "with the CPU kernels" if kernels else "without"
            bars = panel.bar(places + shift, values, 0.4, label=label)
            panel.bar_label(bars, fmt="%.2f", fontsize=7)
        panel.axhline(1, color="lightgrey", linewidth=0.8, zorder=0)
        panel.set(title=title, xticks=places, xticklabels=LABELS)
        panel.set_yscale("log")
        panel.set_ylim(0.05, 8)
    panels[0].set_ylabel("time / plain LSTM's")
    panels[0].set_yticks([0.1, 0.25, 0.5, 1, 2, 4])
    panels[0].set_yticklabels(["0.1", "0.25", "0.5", "1", "2", "4"])
    panels[0].legend(fontsize=7, loc="upper left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(HERE / "figures" / "speed.png")
