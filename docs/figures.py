"""Draws the site's figures from kept results: python docs/figures.py."""

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
DIGITS = HERE.parent / "examples" / "results" / "sequential-mnist"
SIZES = ("A", "B", "C", "D", "S")
LABELS = ("A", "B", "C", "D", "batch of one")
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "torch"}


def times(backend, mode, size, layer="LNLSTM", every_step=False):
    """Median times of a layer and what it is compared with, by provider."""
    with open(RESULTS / f"sequence_layers_{backend}.csv") as file:
        return {
            row["provider"]: float(row["p50_ms"])
            for row in csv.DictReader(file)
            if (row["op"], row["mode"]) == (layer, mode)
            and row["sizes"].split()[0] == size
            and "float32" in row["sizes"]
            and ("every step" in row["sizes"]) is every_step
        }


def shares(backend, kernels, mode="training step", sizes=SIZES):
    """LNLSTM's times over the least of a plain LSTM's modes, by size."""
    found = []
    for size in sizes:
        by_provider = times(backend, mode, size)
        ours = "keras_ln (kernels)," if kernels else "keras_ln,"
        (own,) = (t for n, t in by_provider.items() if n.startswith(ours))
        plain = [
            t for n, t in by_provider.items() if n.startswith("keras LSTM")
        ]
        found.append(own / min(plain))
    return found


def draw(path):
    """Bars by size, a panel per framework."""
    figure, panels = plt.subplots(
        3, 1, figsize=(6, 6), sharex=True, sharey=True, layout="constrained"
    )
    places = np.arange(len(SIZES))
    for panel, (backend, title) in zip(panels, BACKENDS.items(), strict=True):
        for shift, kernels in ((-0.2, True), (0.2, False)):
            values = shares(backend, kernels)
            label = "with the CPU kernels" if kernels else "without"
            bars = panel.bar(places + shift, values, 0.4, label=label)
            panel.bar_label(bars, fmt="%.2f")
        panel.axhline(1, color="grey", linewidth=1, zorder=0)
        panel.set(title=title, xticks=places, xticklabels=LABELS)
        panel.set_yscale("log")
        panel.set_ylim(0.05, 12)
        panel.set_yticks([0.1, 0.25, 1, 4], ["0.1", "0.25", "1", "4"])
    figure.supylabel("time / plain LSTM's")
    panels[0].legend(loc="upper left", ncols=2)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)


def curves(kind, order):
    """Test errors of a kind on sequential digits: (seeds, epochs)."""
    runs = {}
    with open(DIGITS / "history.csv") as file:
        for row in csv.DictReader(file):
            run, _, seed = row["run"].partition("-seed-")
            if run == f"{kind}-order-{order}":
                error = 100 * (1 - float(row["val_accuracy"]))
                runs.setdefault(seed, []).append(error)
    return np.array([*runs.values()])


def draw_digits(path):
    """Means and ranges over the seeds, a panel per order."""
    figure, panels = plt.subplots(
        2, 1, figsize=(5, 5), sharex=True, sharey=True, layout="constrained"
    )
    orders = {"natural": "in order", "permuted": "permuted"}
    for panel, (order, title) in zip(panels, orders.items(), strict=True):
        for kind, label in (("none", "LSTM"), ("layer", "LNLSTM")):
            values = curves(kind, order)
            epochs = np.arange(1, 1 + values.shape[1])
            (line,) = panel.plot(epochs, values.mean(0), label=label)
            panel.fill_between(
                *(epochs, values.min(0), values.max(0)),
                color=line.get_color(),
                alpha=0.2,
            )
        panel.set(title=title, ylabel="test error (%)", ylim=(0, None))
    panels[0].legend()
    panels[1].set_xlabel("epoch")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(HERE / "figures" / "speed.png")
    draw_digits(HERE / "figures" / "digits.png")
