"""Every kept pair of a plain and a layer-normalised network, judged alike.

Every kept result has a row here, whatever its verdict.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from common import files, verdicts
from common.measures import RESOLUTION

KEPT = Path(__file__).resolve().parents[1] / "results"
ERROR = "test_error_percent"
VERDICTS = {
    "agrees": "better",
    "disagrees": "worse",
    "equivalent": "the same",
    "undecided": "undecided",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """The place of a pair in a kept comparison.

    Attributes:
        name: the comparison's folder.
        short: the label in figures, which have little room.
        column: the metric at the end of a run that the tables show.
        places: its decimals.
        behind: the end of both kinds' names in runs.
        held_out: the column of evaluations; with a minus, more is better.
        layer: the layer-normalised kind's name in runs.
        plain: the plain kind's.
        loss: the metrics, summed, that chose settings and epoch of a run;
            likewise.
        same: the claim of "the same" about this pair, if there is one.
    """

    name: str
    short: str
    column: str
    places: int
    behind: str = ""
    held_out: str = "val_loss"
    layer: str = "layer"
    plain: str = "none"
    loss: tuple[str, ...] = ("test_nll",)
    same: str = ""

    @property
    def kinds(self) -> tuple[str, str]:
        """The plain and the layer-normalised kind."""
        return self.plain + self.behind, self.layer + self.behind


def updates(name: str) -> str:
    """The number of updates of each run of a comparison."""
    rows = files.read_table(KEPT / name / "metrics.csv")
    (number,) = {row["updates"] for row in rows}
    return f"{int(number):,}"


def rows() -> Iterator[tuple[str, Row]]:
    """The pairs whose comparisons are kept, with their labels."""
    for label, row in _of_the_paper():
        if (KEPT / row.name).exists():
            if "{updates}" in label:
                label = label.format(updates=updates(row.name))
            yield label, row
    for task, (words, places) in EVERYDAY.items():
        name = f"everyday-{task}"
        if (KEPT / name).exists():
            for cell, (plain, layer) in CELLS.items():
                ends = {"layer": layer, "plain": plain, "loss": ("test_loss",)}
                short = f"{task.replace('_', ' ')}, {cell}"
                yield (
                    f"{cell}: {words}",
                    Row(name, short, "test_error", places, **ends),
                )


def _of_the_paper() -> Iterator[tuple[str, Row]]:
    yield (
        "sentences around a sentence, nats per word",
        Row("skip-thoughts", "sentences", "test_nll", 2, held_out="val_nll"),
    )
    for order, words in (("natural", "in order"), ("permuted", "permuted")):
        for name, longer in (
            ("sequential-mnist-11000", ""),
            ("sequential-mnist", ", longer"),
        ):
            short = f"pixels {words}{longer}"
            yield (
                f"pixels of digits {words}, {{updates}} updates, % errors",
                Row(name, short, ERROR, 1, f"-order-{order}"),
            )
    for gain in (0.1, 1.0):
        yield (
            f"name missing from a passage, gain of {gain:g}, % errors",
            Row(
                *("attentive-reader", f"names, gain {gain:g}"),
                *("validation_error_percent", 1),
                layer=f"layer-gain-{gain}",
                loss=("validation_nll",),
            ),
        )
    yield (
        "generated scenes for a caption, mean rank",
        Row(
            *("order-embeddings", "scenes for captions"),
            *("image_mean_rank", 2),
            held_out="-val_recall_sum",
            loss=tuple(f"-image_r{k}" for k in (1, 5, 10)),
        ),
    )
    bound = "test_bound_nats"
    for words, name in (
        ("small digits", "draw-digits"),
        ("digits", "draw-mnist"),
    ):
        yield (
            f"painting {words} (DRAW), nats",
            Row(name, f"DRAW, {words}", bound, 2, loss=(bound,)),
        )
    yield (
        "handwriting from stroke fonts, nats per point",
        Row(
            *("handwriting", "handwriting", "test_nll", 3),
            held_out="val_nll",
            same="layer ends the same as none",
        ),
    )
    for data, name, size, places, short in (
        ("MNIST", "mnist", 128, 2, "all of MNIST"),
        ("11,000 of MNIST", "mnist-11000", 128, 2, "11,000 of MNIST"),
        ("11,000 of MNIST in 5 epochs", "mnist-sizes", 128, 2, "5 epochs"),
        ("11,000 of MNIST in 5 epochs", "mnist-sizes", 4, 2, "batches of 4"),
        ("11,000 of Fashion-MNIST", "fashion", 128, 1, "Fashion-MNIST"),
        ("small digits", "digits", 128, 2, "small digits"),
        ("small digits", "digits", 4, 2, "small, batches of 4"),
    ):
        yield (
            f"dense layers on {data}, batches of {size}, % errors",
            Row(
                *(f"permutation-invariant-{name}", f"dense, {short}"),
                *(ERROR, places),
                f"-batch-size-{size}",
            ),
        )
    for own, layer in (("", "layer"), (", by channel", "layer-channels")):
        yield (
            f"convolutions on Fashion-MNIST{own}, % errors",
            Row(
                *("convolutional-fashion", f"convolutions{own}", ERROR, 1),
                layer=layer,
            ),
        )


# By task, the error in words and its decimals.
EVERYDAY = {
    "addition": ("sums of two numbers, % wrong", 2),
    "characters": ("next character of a text, % wrong", 2),
    "long_memory": ("two of 200 numbers to add, RMSE", 3),
    "verses": ("which book a verse is from, % wrong", 1),
    "forecast": ("forecast of a chaotic series, RMSE", 4),
    "spelling": ("pronunciation of a word, % wrong words", 1),
    "movements": ("exercise from a watch, % wrong", 1),
    "chorales": ("next chord of a chorale, % wrong notes", 1),
}
CELLS = {"LSTM": ("lstm", "lnlstm"), "GRU": ("gru", "lngru")}


def ends(name: str, column: str, kind: str) -> np.ndarray:
    """A metric at the end of the runs of a kind, by seed."""
    runs = {
        row["run"].rpartition("-seed-")[::2]: float(row[column])
        for row in files.read_table(KEPT / name / "metrics.csv")
    }
    return np.array([runs[run] for run in sorted(runs) if run[0] == kind])


def on_the_way(row: Row, kind: str) -> np.ndarray:
    """The mean over the evaluations of each run of a kind, by seed."""
    of_pair = files.read_table(KEPT / row.name / "verdicts.csv")
    log = any("log10" in claim["measure"] for claim in of_pair)
    column = row.held_out.removeprefix("-")
    runs: dict[str, list[float]] = {}
    for entry in files.read_table(KEPT / row.name / "history.csv"):
        if entry[column]:
            value = float(entry[column])
            value = np.log10(max(value, RESOLUTION)) if log else value
            runs.setdefault(entry["run"], []).append(value)
    sign = -1 if row.held_out != column else 1
    return np.array(
        [
            sign * np.mean(runs[run])
            for run in sorted(runs)
            if run.rpartition("-seed-")[0] == kind
        ]
    )


def _losses(row: Row, kind: str) -> Any:
    """The sum that chose the runs of a kind, at their ends."""
    return sum(
        -ends(row.name, column[1:], kind)
        if column[0] == "-"
        else ends(row.name, column, kind)
        for column in row.loss
    )


def best_floor(name: str, column: str) -> float:
    """The metric at the end of the best baseline that is no network."""
    kept = files.read_json(KEPT / name / "settings.json")
    return min(
        own["metrics"][column]
        for own in kept["comparison"]["floors"]
        if column in own["metrics"] and "untrained" not in own["label"][0]
    )


@dataclasses.dataclass(frozen=True)
class Pair:
    """The measurements of a pair, and its verdicts.

    Attributes:
        label: the task, with the unit of the metric.
        row: its place.
        ends: the metric at the end by seed, plain first.
        baseline: the best trivial one.
        way: the verdict on the way, corrected over all pairs.
        end: the verdict at the end, likewise.
    """

    label: str
    row: Row
    ends: tuple[np.ndarray, np.ndarray]
    baseline: float
    way: str
    end: str

    @property
    def decides_nothing(self) -> bool:
        """Whether the baseline is better than both networks."""
        return bool(min(found.mean() for found in self.ends) > self.baseline)


def judged() -> list[Pair]:
    """All pairs; the p values are Benjamini's and Hochberg's, over all."""
    found = []
    for label, row in rows():
        plain, layer = row.kinds
        margin = None
        if row.same:
            (claim,) = (
                own
                for own in files.read_table(KEPT / row.name / "verdicts.csv")
                if own["claim"] == row.same
            )
            margin = float(claim["margin"])
        way = on_the_way(row, layer) - on_the_way(row, plain)
        end = _losses(row, layer) - _losses(row, plain)
        tests = verdicts.summary(way), verdicts.summary(end, margin)
        found.append((label, row, margin, tests))
    corrected = [
        verdicts.discovered([tests[place][-1] for *_, tests in found])
        for place in range(2)
    ]
    pairs = []
    for k, (label, row, margin, tests) in enumerate(found):
        way, end = (
            VERDICTS[verdicts.verdict(tests[i][0], corrected[i][k], own)]
            for i, own in enumerate((None, margin))
        )
        plain, layer = (ends(row.name, row.column, kind) for kind in row.kinds)
        pairs.append(
            Pair(
                label,
                row,
                (plain, layer),
                best_floor(row.name, row.column),
                way,
                end,
            )
        )
    return pairs
