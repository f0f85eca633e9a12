"""Draws the site's figures from kept results: python docs/figures.py."""

import csv
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from tables import BACKENDS, SIZES, machine, over_keras

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "examples" / "results" / "sequential-mnist"
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


def logistic_regression():
    """The test error of a logistic regression on these digits, in percent."""
    kept = json.loads((DIGITS / "settings.json").read_text())
    (error,) = (
        floor["metrics"]["test_error_percent"]
        for floor in kept["comparison"]["floors"]
        if "logistic regression" in floor["label"][0]
    )
    return error


def draw_digits(path):
    """Means and ranges over the seeds, a panel per order."""
    figure, panels = plt.subplots(
        2, 1, figsize=(5, 5), sharex=True, sharey=True, layout="constrained"
    )
    orders = {"natural": "in order", "permuted": "permuted"}
    for panel, (order, title) in zip(panels, orders.items(), strict=True):
        # In grey, the dashes tell them apart.
        kinds = (("none", "LSTM", "--"), ("layer", "LNLSTM", "-"))
        for kind, label, dashes in kinds:
            values = curves(kind, order)
            epochs = np.arange(1, 1 + values.shape[1])
            (line,) = panel.plot(epochs, values.mean(0), dashes, label=label)
            panel.fill_between(
                *(epochs, values.min(0), values.max(0)),
                color=line.get_color(),
                alpha=0.2,
            )
        panel.axhline(
            logistic_regression(),
            color="black",
            linestyle=":",
            label="logistic regression",
        )
        panel.set(title=title, ylabel="test error (%)", ylim=(0, None))
    panels[0].legend()
    panels[1].set_xlabel("epoch")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(HERE / "figures" / "speed.png")
    draw_digits(HERE / "figures" / "digits.png")
