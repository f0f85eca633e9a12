"""What the rows of `search.py` say: statistics, tables and figures.

A study of k settings trains k points and keeps the one of least validation
loss. Its expected test loss is exact: a mean over all subsets of k points.
Intervals are 95 % bootstraps over points, the same for all kinds and tasks;
over tasks they are Student's t.

Letters: T tasks, K kinds, N points.
"""

import csv
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import files
from common import report as reports
from common.errors import InputError
from scipy import special, stats

# What is analysed, whichever points are complete.
PREFIXES = (64, 32, 16)
# The points of a study, if a quarter of all are as many.
STUDY = 8
BAND, LEVEL = 0.05, 0.95
PAIRS = (("lnlstm", "lstm"), ("lnlstm", "lstm_ln_outside"))
PAIRS += (("lngru", "gru"), ("lngru", "gru_ln_outside"))
SETTINGS = ("learning_rate", "input_scale", "recurrent_scale")
_WORDS = ("task", "kind", "machine", "commit")

Rows = Mapping[tuple[int, str, str], Mapping[str, Any]]


class Study(NamedTuple):
    """All runs of the first N points."""

    tasks: Sequence[str]
    kinds: Sequence[str]
    columns: Mapping[str, np.ndarray]  # (T, K, N) each

    def of(self, kind: str, column: str) -> np.ndarray:
        """A column of a kind, (T, N)."""
        return self.columns[column][:, self.kinds.index(kind)]


def read(paths: Sequence[Path]) -> Rows:
    """All whole rows by point, task and kind; a run has one result."""
    found: dict[tuple[int, str, str], dict[str, Any]] = {}
    for path in paths:
        text = path.read_text("utf-8")
        lines = text[: text.rfind("\n") + 1].splitlines()
        for number, row in enumerate(csv.DictReader(lines), 2):
            try:
                own = {
                    name: cell if name in _WORDS else float(cell or "nan")
                    for name, cell in row.items()
                }
                key = (int(own["point"]), own["task"], own["kind"])
                loss = own["test_loss"]
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"{path}, line {number}: expected a row of search.py"
                ) from error
            if found.setdefault(key, own)["test_loss"] != loss:
                raise InputError(
                    f"{path}, line {number}: the run {key} has two results; "
                    "keep one of them"
                )
    return found


def study(rows: Rows, tasks: Sequence[str], kinds: Sequence[str]) -> Study:
    """The first 64, 32 or 16 points, which all tasks and kinds need."""
    whole = 0
    while all((whole, task, kind) in rows for task in tasks for kind in kinds):
        whole += 1
    count = next((n for n in PREFIXES if n <= whole), None)
    if count is None:
        raise InputError(
            f"expected rows of the first {PREFIXES[-1]} points for "
            f"{', '.join(tasks)} and {', '.join(kinds)}; found {whole}"
        )
    names = [n for n in rows[0, tasks[0], kinds[0]] if n not in _WORDS]

    def column(name):
        places = itertools.product(tasks, kinds, range(count))
        values = [rows[p, task, kind][name] for task, kind, p in places]
        return np.reshape(values, (len(tasks), len(kinds), count))

    return Study(tasks, kinds, {name: column(name) for name in names})


def expected_best(
    validation: np.ndarray, values: np.ndarray, most: int
) -> np.ndarray:
    """The mean value of the best of k points, k = 1 to `most`.

    Args:
        validation: what chooses among k points, (..., N). Equal losses are
            those of the best constant, whose values are equal too.
        values: of the points, (..., N).

    Returns:
        Means over all subsets of k points, (..., most).
    """
    order = np.argsort(validation, axis=-1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=-1)
    count = values.shape[-1]
    behind = count - 1 - np.arange(count)[:, None]
    k = np.arange(1, most + 1)
    return ranked @ (special.comb(behind, k - 1) / special.comb(count, k))


def resampled(
    validation: np.ndarray, values: np.ndarray, most: int, draws: int = 2_000
) -> np.ndarray:
    """`expected_best` of points drawn with replacement, (..., draws, most).

    Equal calls draw the same points.
    """
    count = values.shape[-1]
    points = np.random.default_rng(0).integers(count, size=(draws, count))
    return expected_best(validation[..., points], values[..., points], most)


def interval(samples: np.ndarray, axis: int = -1) -> np.ndarray:
    """The bounds (2, ...) of the middle 95 %."""
    tail = (1 - LEVEL) / 2
    return np.quantile(samples, (tail, 1 - tail), axis=axis)


def chance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The chance that one of our losses is lower than one of theirs.

    A tie is half a chance.
    """
    wins = stats.mannwhitneyu(theirs, ours).statistic
    return float(wins / (len(ours) * len(theirs)))


def studies(validation: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values (..., N/8) that disjoint studies of 8 points keep."""
    shape = (*values.shape[:-1], -1, STUDY)
    validation, values = validation.reshape(shape), values.reshape(shape)
    best = validation.argmin(axis=-1)[..., None]
    return np.take_along_axis(values, best, axis=-1)[..., 0]


def over_tasks(ratios: np.ndarray) -> tuple[float, float, float]:
    """The mean of log ratios of tasks, and its interval."""
    bounds = stats.ttest_1samp(ratios, 0.0).confidence_interval(LEVEL)
    return float(np.mean(ratios)), float(bounds.low), float(bounds.high)


def pairs(found: Study) -> list[dict[str, Any]]:
    """For each pair a row per task, and with several tasks one of all."""
    count = found.columns["test_loss"].shape[-1]
    k = min(STUDY, count // 4)
    rows = []
    for kind, rival in PAIRS:
        if not {kind, rival} <= {*found.kinds}:
            continue
        both = [
            (found.of(name, "validation_loss"), found.of(name, "test_loss"))
            for name in (kind, rival)
        ]
        ours, theirs = (expected_best(*own, k)[..., -1] for own in both)
        again = [np.log(resampled(*own, k)[..., -1]) for own in both]
        ratios, bounds = np.log(ours / theirs), interval(again[0] - again[1])
        kept = [studies(*own) for own in both]
        for n, task in enumerate(found.tasks):
            low, high = bounds[:, n]
            row = {"task": task, "kind": kind, "rival": rival, "k": k}
            row |= {"loss": ours[n], "rival's loss": theirs[n]}
            row |= {"log ratio": ratios[n], "from": low, "to": high}
            row["chance of a point"] = chance(both[0][1][n], both[1][1][n])
            row["studies of 8"] = len(kept[0][n])
            row["won"] = int((kept[0][n] < kept[1][n]).sum())
            rows.append(row)
        if len(found.tasks) > 1:
            mean, low, high = over_tasks(ratios)
            row = {"task": "all", "kind": kind, "rival": rival, "k": k}
            row |= {"log ratio": mean, "from": low, "to": high}
            rows.append(dict.fromkeys(rows[-1], "") | row)
    return rows


def best(found: Study) -> list[dict[str, Any]]:
    """For each task, kind and k the measures of the best of k points."""
    validation = found.columns["validation_loss"]
    most = validation.shape[-1] // 4
    names = ("test_loss", "test_error", "on_the_way")
    values = {
        name: expected_best(validation, found.columns[name], most)
        for name in names
    }
    rows = []
    for t, task in enumerate(found.tasks):
        own = (validation[t], found.columns["test_loss"][t])
        low, high = interval(resampled(*own, most), axis=1)
        for n, kind in enumerate(found.kinds):
            diverged = int(found.columns["diverged"][t, n].sum())
            for k in range(most):
                row = {"task": task, "kind": kind, "k": k + 1}
                row |= {name: own[t, n, k] for name, own in values.items()}
                row |= {"from": low[n, k], "to": high[n, k]}
                rows.append(row | {"diverged": diverged})
    return rows


def percent(row: Mapping[str, Any]) -> str:
    """A log ratio and its interval in percent."""
    ratio, low, high = (
        100 * np.expm1(row[name]) for name in ("log ratio", "from", "to")
    )
    return f"{ratio:+.1f} % ({low:+.1f} to {high:+.1f} %)"


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each task, and one for all."""
    said = []
    for task in dict.fromkeys(row["task"] for row in rows):
        parts: dict[str, list[str]] = {}
        for row in rows:
            if row["task"] == task:
                own = "" if task == "all" else f" reaches {row['loss']:.4g}"
                against = parts.setdefault(f"{row['kind']}{own}", [])
                against.append(f"{percent(row)} against {row['rival']}")
        k = rows[0]["k"]
        start = (
            f"all tasks, a mean of their log ratios for the best of {k} points"
            if task == "all"
            else f"{task}, the expected test loss of the best of {k} points"
        )
        each = (f"{ours}, {', '.join(more)}" for ours, more in parts.items())
        said.append(f"{start}: {'; '.join(each)}.")
    return said


def report(found: Study, folder: Path) -> None:
    """Prints tables and sentences, and writes tables and figures."""
    count = found.columns["test_loss"].shape[-1]
    compared, curves = pairs(found), best(found)
    print(f"The first {count} points; a lower log ratio favours the kind.\n")
    if compared:
        print(reports.table(compared), "\n")
        files.write_csv(folder / "pairs.csv", compared)
    k = min(STUDY, count // 4)
    print(reports.table([row for row in curves if row["k"] in (1, k)]), "\n")
    files.write_csv(folder / "best_of_k.csv", curves)
    for sentence in sentences(compared):
        print(sentence)

    import search_figures

    search_figures.draw(found, compared, curves, folder)
    print(f"Tables and figures are in {folder}.")
