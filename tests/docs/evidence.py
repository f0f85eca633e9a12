"""The tables of "Should I use it?": results and settings by task."""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import scipy.stats
from docs.measured import (
    ERROR,
    KEPT,
    ROOT,
    best_floor,
    chosen,
    ends,
    kept_settings,
    on_the_way,
    table,
)


class Row(NamedTuple):
    """Where the numbers of a task are kept."""

    name: str
    column: str  # What its runs end with.
    places: int
    behind: str = ""  # The kinds' names in runs.
    held_out: str = "val_loss"  # Of evaluations; minus: more is better.
    where: str = ""  # The claims' names.
    end: str = "layer ends lower than none"
    layer: str = "layer"  # The kind's name in runs.


def updates(name):
    """How many each run of a result has made."""
    (number,) = {row["updates"] for row in table(KEPT / name / "metrics.csv")}
    return f"{int(number):,}"


EVIDENCE = {
    "sentences around a sentence, nats per word": Row(
        *("skip-thoughts", "test_nll", 2), held_out="val_nll"
    ),
    **{
        f"pixels of digits {words}, {updates(name)} updates, % errors": Row(
            *(name, ERROR, 1, f"-order-{order}"), where=f", {order}"
        )
        for order, words in (("natural", "in order"), ("permuted", "permuted"))
        for name in ("sequential-mnist-11000", "sequential-mnist")
    },
    "names in a passage, % errors": Row(
        *("attentive-reader", "validation_error_percent", 1),
        where=", gain 1.0",
        layer="layer-gain-1.0",
    ),
    "captions for a generated scene, mean rank": Row(
        *("order-embeddings", "caption_mean_rank", 2),
        held_out="-val_recall_sum",
        end="layer finds captions sooner than none",
    ),
    "generated scenes for a caption, mean rank": Row(
        *("order-embeddings", "image_mean_rank", 2),
        held_out="-val_recall_sum",
        end="layer finds images sooner than none",
    ),
    "painting digits (DRAW), nats": Row("draw-digits", "test_bound_nats", 2),
    "handwriting from stroke fonts, nats per point": Row(
        *("handwriting", "test_nll", 3),
        held_out="val_nll",
        end="layer ends the same as none",
    ),
    "dense layers on MNIST, batches of 128, % errors": Row(
        *("permutation-invariant-mnist", ERROR, 2, "-batch-size-128")
    ),
    "dense layers on MNIST, batches of 4, % errors": Row(
        *("permutation-invariant-mnist-sizes", ERROR, 2, "-batch-size-4")
    ),
    "dense layers on Fashion-MNIST, % errors": Row(
        *("permutation-invariant-fashion", ERROR, 1, "-batch-size-128")
    ),
    "convolutions on Fashion-MNIST, % errors": Row(
        *("convolutional-fashion", ERROR, 1)
    ),
}
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
    "names in a passage": ("attentive-reader", {"gain": "1.0"}),
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
# Everyday task, what is wrong, and decimals.
EVERYDAY = {
    "addition": ("sums of two numbers, % wrong", 1),
    "characters": ("next character of a text, % wrong", 1),
    "long_memory": ("two of 200 numbers to add, RMSE", 3),
    "verses": ("which book a verse is from, % wrong", 1),
    "forecast": ("forecast of a chaotic series, RMSE", 4),
}
CELLS = {"LSTM": ("lstm", "lnlstm"), "GRU": ("gru", "lngru")}
VERDICTS = {
    "agrees": "better",
    "disagrees": "worse",
    "equivalent": "the same",
    "undecided": "undecided",
}


def kept_verdict(name, claim):
    """A claim's verdict, None where it is not judged."""
    rows = table(KEPT / name / "verdicts.csv")
    row = next((row for row in rows if row["claim"] == claim), None)
    if row is None or not row["verdict"]:
        return None
    if int(row["diverged"]):
        return f"{row['diverged']} of {row['seeds']} diverge"
    return VERDICTS[row["verdict"]]


def by_interval(plain, layer):
    """In brackets, by Student's t of the differences; less is better."""
    interval = scipy.stats.ttest_1samp(layer - plain, 0).confidence_interval()
    if interval.high < 0:
        return "(better)"
    return "(worse)" if interval.low > 0 else "(undecided)"


def everyday():
    """The rows of the everyday tasks that are kept, for LSTMs and GRUs."""
    for task, (label, places) in EVERYDAY.items():
        name = f"everyday-{task}"
        if not (KEPT / name).exists():
            continue
        start = best_floor(name, "test_error")
        for cell, (plain, layer) in CELLS.items():
            means = (ends(name, "test_error", k).mean() for k in (plain, layer))
            shown = " | ".join(f"{m:.{places}f}" for m in (start, *means))
            words = task.replace("_", " ")
            way, end = (
                kept_verdict(name, f"{words}: {layer} {how} than {plain}")
                for how in ("is faster", "ends lower")
            )
            seeds = len(ends(name, "test_error", plain))
            yield f"| {cell}: {label} | {shown} | {seeds} | {way} | {end} |"


def evidence():
    """The table of what happened."""
    heading = "task | baseline | plain | layer norm. | seeds | on the way"
    yield f"| {heading} | at the end |"
    yield "|---|---|---|---|---|---|---|"
    for label, row in EVIDENCE.items():
        kinds = [kind + row.behind for kind in ("none", row.layer)]
        ending = [ends(row.name, row.column, kind) for kind in kinds]
        going = [on_the_way(row.name, row.held_out, kind) for kind in kinds]
        faster = f"layer is faster than none{row.where}"
        way = kept_verdict(row.name, faster) or by_interval(*going)
        end = kept_verdict(row.name, row.end + row.where)
        shown = best_floor(row.name, row.column), *(x.mean() for x in ending)
        cells = [label, *(f"{value:.{row.places}f}" for value in shown)]
        cells += [f"{len(ending[0])}", way, end or by_interval(*ending)]
        yield f"| {' | '.join(cells)} |"
    yield from everyday()


def tally():
    """How often each verdict stands at the end of the table's rows.

    Returns:
        The counts, and how many of those that decide are uncorrected.
    """
    _, _, *rows = evidence()
    found = Counter(row.split(" | ")[-1].strip(" |") for row in rows)
    counts = Counter()
    for words, count in found.items():
        counts[words.strip("()")] += count
    return counts, found["(better)"] + found["(worse)"]


def settings():
    """The table of what the grids chose."""
    yield "| task | rate | plain network's | gain | batch size | clipped to |"
    yield "|---|---|---|---|---|---|"
    rows = [(*row, "layer", "none") for row in SETTINGS.items()]
    for task in EVERYDAY:
        if (KEPT / f"everyday-{task}").exists():
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
