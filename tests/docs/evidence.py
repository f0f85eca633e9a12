"""Results and settings by task, for "Should I use it?" and the README."""

import re
from collections import Counter

import numpy as np
from common import claims, pairs, verdicts
from common.pairs import CELLS, KEPT, judged
from docs.measured import ROOT, chosen, kept_settings, table

# The everyday tasks that are kept.
EVERYDAY = [t for t in pairs.EVERYDAY if (KEPT / f"everyday-{t}").exists()]
NOTHING = "decides nothing"
# Result, and the choices of its grid that the row is about.
SETTINGS = {
    "sentences around a sentence": ("skip-thoughts", {}),
    "pixels of digits in order": (
        "sequential-mnist-11000",
        {"order": "natural"},
    ),
    "pixels of digits permuted": (
        "sequential-mnist-11000",
        {"order": "permuted"},
    ),
    "name missing from a passage": ("attentive-reader", {"gain": "1.0"}),
    "captions and scenes": ("order-embeddings", {}),
    "DRAW": ("draw-digits", {}),
    "handwriting": ("handwriting", {}),
    "dense layers, MNIST": ("permutation-invariant-mnist", {}),
    "dense layers, MNIST, batches of 4": (
        "permutation-invariant-mnist-sizes",
        {"batch_size": "4"},
    ),
    "dense layers, Fashion-MNIST": ("permutation-invariant-fashion", {}),
    "convolutions": ("convolutional-fashion", {}),
}


def evidence():
    """The table of what happened."""
    heading = "task | baseline | plain | layer norm. | seeds | on the way"
    yield f"| {heading} | at the end |"
    yield "|---|---|---|---|---|---|---|"
    for pair in judged():
        end = pair.end + f", {NOTHING}" * pair.decides_nothing
        yield f"| {' | '.join((*_cells(pair), pair.way, end))} |"


def _cells(pair):
    """The task, its baseline, both means and the number of seeds."""
    means = [found.mean() for found in pair.ends]
    shown = (f"{x:.{pair.row.places}f}" for x in (pair.baseline, *means))
    return [pair.label, *shown, f"{len(pair.ends[0])}"]


def tally():
    """How often each verdict stands at the end of the rows that mean something.

    Returns:
        The counts, and how many of those that decide are expected to be false
        at most.
    """
    counts = Counter(pair.end for pair in judged() if not pair.decides_nothing)
    decided = counts.total() - counts["undecided"]
    return counts, verdicts.LEVEL * decided


def without_meaning():
    """How many rows have a baseline that neither network reaches."""
    return sum(pair.decides_nothing for pair in judged())


def settings():
    """The table of what the grids chose."""
    yield "| task | rate | plain network's | gain | batch size | clipped to |"
    yield "|---|---|---|---|---|---|"
    rows = [(*row, "layer", "none") for row in SETTINGS.items()]
    for task in EVERYDAY:
        rows += [
            (
                f"{task.replace('_', ' ')}, {cell}",
                *((f"everyday-{task}", {}), layer, plain),
            )
            for cell, (plain, layer) in CELLS.items()
        ]
    for label, (name, where), layer, plain in rows:
        rates = []
        for kind in (layer, plain):
            best, tried = chosen(name, kind, where)
            rate = float(best["learning_rate"])
            rates.append(f"{rate:g}{'*' * (rate in (min(tried), max(tried)))}")
        gain = chosen(name, layer, where)[0].get("gain")
        kept = kept_settings(name)
        script = kept["comparison"]["experiment"].partition("-")[0]
        files = (ROOT / "examples").glob(f"{script}*.py")
        code = "".join(path.read_text() for path in files)
        clipped = re.search(r"clipnorm=([\d.]+)", code)
        cells = [label, *rates, f"{float(gain):g}" if gain else "not searched"]
        sizes = np.ravel(kept["args"]["batch_size"])
        cells += [where.get("batch_size") or f"{sizes[0]}"]
        cells += [f"{float(clipped[1]):g}" if clipped else "no"]
        yield f"| {' | '.join(cells)} |"


def some():
    """The rows that the README shows."""
    yield "| task (less is better) | plain | layer norm. | at the end |"
    yield "|---|---|---|---|"
    wanted = (
        *(
            "name missing from a passage, gain of 1,",
            "LSTM: sums",
            "GRU: next character",
        ),
        *("painting small digits", "LSTM: two of"),
    )
    for start in wanted:
        (pair,) = (own for own in judged() if own.label.startswith(start))
        label, _, plain, layer, _ = _cells(pair)
        yield f"| {label} | {plain} | {layer} | {pair.end} |"


def good(task, kind, limit=None):
    """How many points of the first grid learn well, and how many it has.

    They are nine, with each of the forget biases that it has.
    """
    limit = limit or claims.OF[f"everyday-{task}"].good
    args = kept_settings(f"everyday-{task}")["args"]
    rates = [args["learning_rate"] * factor for factor in (0.3, 1, 3)]
    starts = {"scale": (0.3, 1, 3), "gain": (0.1, 0.3, 1)}
    losses = [
        float(row["held-out loss"])
        for row in table(KEPT / f"everyday-{task}" / "tuning.csv")
        if row["norm"] == kind
        and np.isclose(float(row["learning_rate"]), rates).any()
        and any(row[k] and float(row[k]) in v for k, v in starts.items())
    ]
    assert len(losses) in (9, 18)
    return sum(x <= limit for x in losses), len(losses)


def more_settings(place):
    """By how many points each layer leads its plain layer at a limit."""
    return [
        good(task, layer, limit)[0] - good(task, plain, limit)[0]
        for task in EVERYDAY
        for limit in [claims.OF[f"everyday-{task}"].thresholds[place]]
        for plain, layer in CELLS.values()
    ]


def working():
    """The table of how many of nine settings work."""
    yield "| of nine settings | `LNLSTM` | LSTM | `LNGRU` | GRU |"
    yield "|---|---|---|---|---|"
    for task in EVERYDAY:
        found = [
            [good(task, kind) for kind in (layer, plain)]
            for plain, layer in CELLS.values()
        ]
        cells = [
            f"{number} of {points}" if points > 9 else f"{number}"
            for pair in found
            for number, points in pair
        ]
        yield f"| {task.replace('_', ' ')} | {' | '.join(cells)} |"
