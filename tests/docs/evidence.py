"""Results and settings by task, for "Should I use it?" and the README."""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
from common import claims, verdicts
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
    layer: str = "layer"  # The kind's name in runs.
    # What chose a run's settings and its end; the name of a claim of "the same"
    # that is about this, too.
    loss: tuple[str, ...] = ("test_nll",)
    same: str = ""


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
            *(name, ERROR, 1, f"-order-{order}")
        )
        for order, words in (("natural", "in order"), ("permuted", "permuted"))
        for name in ("sequential-mnist-11000", "sequential-mnist")
    },
    **{
        f"names in a passage, gain of {gain:g}, % errors": Row(
            *("attentive-reader", "validation_error_percent", 1),
            layer=f"layer-gain-{gain}",
            loss=("validation_nll",),
        )
        for gain in (0.1, 1.0)
    },
    "generated scenes for a caption, mean rank": Row(
        *("order-embeddings", "image_mean_rank", 2),
        held_out="-val_recall_sum",
        loss=tuple(f"-image_r{k}" for k in (1, 5, 10)),
    ),
    **{
        f"painting {what} (DRAW), nats": Row(
            *(name, "test_bound_nats", 2), loss=("test_bound_nats",)
        )
        for what, name in (
            ("small digits", "draw-digits"),
            ("digits", "draw-mnist"),
        )
    },
    "handwriting from stroke fonts, nats per point": Row(
        *("handwriting", "test_nll", 3),
        held_out="val_nll",
        same="layer ends the same as none",
    ),
    **{
        f"dense layers on {data}, batches of {size}, % errors": Row(
            *(f"permutation-invariant-{name}", ERROR, places),
            f"-batch-size-{size}",
        )
        for data, name, size, places in (
            ("MNIST", "mnist", 128, 2),
            ("11,000 of MNIST", "mnist-11000", 128, 2),
            ("11,000 of MNIST in 5 epochs", "mnist-sizes", 128, 2),
            ("11,000 of MNIST in 5 epochs", "mnist-sizes", 4, 2),
            ("11,000 of Fashion-MNIST", "fashion", 128, 1),
            ("small digits", "digits", 128, 2),
            ("small digits", "digits", 4, 2),
        )
    },
    **{
        f"convolutions on Fashion-MNIST{own}, % errors": Row(
            *("convolutional-fashion", ERROR, 1), layer=layer
        )
        for own, layer in (("", "layer"), (", by channel", "layer-channels"))
    },
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
NOTHING = "decides nothing"


def _everyday_rows():
    """The rows of the everyday tasks that are kept, for LSTMs and GRUs."""
    for task, (label, places) in EVERYDAY.items():
        if (KEPT / f"everyday-{task}").exists():
            for cell, (plain, layer) in CELLS.items():
                row = Row(
                    *(f"everyday-{task}", "test_error", places),
                    layer=layer,
                    loss=("test_loss",),
                )
                yield f"{cell}: {label}", row, plain


def _log(name):
    """Whether the losses of a comparison are judged by their logarithms."""
    measures = [row["measure"] for row in table(KEPT / name / "verdicts.csv")]
    return any("log10" in measure for measure in measures)


def _losses(row, kind):
    """What chose the runs, at their ends; less is better."""
    return sum(
        -ends(row.name, column[1:], kind)
        if column[0] == "-"
        else ends(row.name, column, kind)
        for column in row.loss
    )


class Found(NamedTuple):
    """A pair: its cells, and p and difference on the way and at the end."""

    cells: list[str]
    p: tuple[float, float]
    differences: tuple[float, float]
    margin: float | None
    nothing: bool


def found():
    """Every kept pair of a plain and a layer-normalised network."""
    rows = [(*row, "none") for row in EVIDENCE.items()]
    for label, row, plain in (*rows, *_everyday_rows()):
        kinds = [plain + row.behind, row.layer + row.behind]
        ending = [ends(row.name, row.column, kind) for kind in kinds]
        going = [
            on_the_way(row.name, row.held_out, kind, _log(row.name))
            for kind in kinds
        ]
        losses = [_losses(row, kind) for kind in kinds]
        margin = None
        if row.same:
            (claim,) = (
                own
                for own in table(KEPT / row.name / "verdicts.csv")
                if own["claim"] == row.same
            )
            margin = float(claim["margin"])
        way, _, _, way_p = verdicts.summary(going[1] - going[0])
        end, _, _, end_p = verdicts.summary(losses[1] - losses[0], margin)
        start = best_floor(row.name, row.column)
        means = [values.mean() for values in ending]
        shown = (f"{value:.{row.places}f}" for value in (start, *means))
        yield Found(
            [label, *shown, f"{len(ending[0])}"],
            *((way_p, end_p), (way, end)),
            *(margin, bool(min(means) > start)),
        )


def judged():
    """All pairs with their verdicts, on the way and at the end."""
    pairs = [*found()]
    corrected = [
        verdicts.discovered([pair.p[place] for pair in pairs])
        for place in range(2)
    ]
    for pair, *p in zip(pairs, *corrected, strict=True):
        way, end = (
            VERDICTS[verdicts.verdict(*own)]
            for own in zip(
                pair.differences, p, (None, pair.margin), strict=True
            )
        )
        yield pair, way, end


def evidence():
    """The table of what happened."""
    heading = "task | baseline | plain | layer norm. | seeds | on the way"
    yield f"| {heading} | at the end |"
    yield "|---|---|---|---|---|---|---|"
    for pair, way, end in judged():
        end += f", {NOTHING}" * pair.nothing
        yield f"| {' | '.join((*pair.cells, way, end))} |"


def tally():
    """How often each verdict stands at the end of the rows that mean something.

    Returns:
        The counts, and how many of those that decide are expected to be false
        at most.
    """
    counts = Counter(end for pair, _, end in judged() if not pair.nothing)
    decided = counts.total() - counts["undecided"]
    return counts, verdicts.LEVEL * decided


def without_meaning():
    """How many rows have a baseline that neither network reaches."""
    return sum(pair.nothing for pair, _, _ in judged())


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


def some():
    """The rows that the README shows."""
    yield "| task (less is better) | plain | layer norm. | at the end |"
    yield "|---|---|---|---|"
    wanted = (
        *("names in a passage, gain of 1,", "LSTM: sums", "LSTM: next"),
        *("dense layers on 11,000 of Fashion-MNIST", "LSTM: two of"),
    )
    for start in wanted:
        ((pair, _, end),) = (
            own for own in judged() if own[0].cells[0].startswith(start)
        )
        yield f"| {' | '.join((pair.cells[0], *pair.cells[2:4], end))} |"


def good(task, kind, limit=None):
    """How many of the nine points of the first grid learn well."""
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
    assert len(losses) == 9
    return sum(x <= limit for x in losses)


def more_settings(place):
    """How many pairs reach a limit at more points with layer norm.; ties."""
    signs = [
        np.sign(good(task, layer, limit) - good(task, plain, limit))
        for task in EVERYDAY
        for limit in [claims.OF[f"everyday-{task}"].thresholds[place]]
        for plain, layer in CELLS.values()
    ]
    assert min(signs) >= 0
    return signs.count(1), signs.count(0)


def working():
    """The table of how many of nine settings work."""
    yield "| of nine settings | `LNLSTM` | LSTM | `LNGRU` | GRU |"
    yield "|---|---|---|---|---|"
    for task in EVERYDAY:
        pairs = [
            [good(task, kind) for kind in (layer, plain)]
            for plain, layer in CELLS.values()
        ]
        assert all(layer > plain for layer, plain in pairs)
        cells = [str(number) for pair in pairs for number in pair]
        yield f"| {task.replace('_', ' ')} | {' | '.join(cells)} |"
