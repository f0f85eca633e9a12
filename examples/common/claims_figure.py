"""One table and one figure of the most important claims.

`results/claims.csv` names them, with each claim's weakest point; the rest comes
from the kept results.
"""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt

from common import claims, files, pairs, plotting, tables, verdicts
from common.measures import Claim

NAMED = Path(__file__).resolve().parents[1] / "results" / "claims.csv"
# The lines before and after the table in a page.
START, END = "<!-- of results.py draw -->\n", "<!-- until here -->\n"
NUMBERS = ("mean difference", "from", "to")
# Ratios beyond it, and below its inverse, are cut off.
REACH = 2.0
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)
NOTHING = "a trivial baseline is better"
# By verdict; the markers tell them apart in grey.
STYLES = {
    "better": ("#0072B2", "o"),
    "worse": ("#D55E00", "D"),
    "the same": ("#555555", "s"),
    "undecided": ("#666666", "|"),
    NOTHING: ("#666666", "|"),
}


def rows(kept: Path) -> list[dict[str, Any]]:
    """The claims of `NAMED` whose comparisons are kept, in its order.

    Args:
        kept: the folder of kept comparisons.

    Returns:
        The rows of the file, with the `verdict`, the `effect` in words,
        `data`, whether a winner lies `on an edge` of its grid, and the
        difference and its interval in percent and as a ratio, None without
        an interval. Differences are relative to the mean of the rival; a
        difference of logarithms becomes a ratio of their arguments.
    """
    found = []
    for named in files.read_table(NAMED):
        folder = files.inside(kept, named["comparison"], NAMED)
        needed = ("settings.json", "verdicts.csv")
        if not all((folder / name).exists() for name in needed):
            continue
        record = files.read_json(folder / "settings.json")["comparison"]
        (claim,) = (
            own
            for own in claims.OF[record["experiment"]].claims
            if own.text == named["claim"]
        )
        (row,) = (
            own
            for own in files.read_table(folder / "verdicts.csv")
            if own["claim"] == named["claim"]
        )
        data = f"{record['title']}, {row['seeds']} seeds"
        percent = ratio = None
        if row["from"]:
            rival = float(row["mean of rival"])
            numbers = [float(row[name]) for name in NUMBERS]
            percent = [_percent(claim, own, rival) for own in numbers]
            ratio = [_ratio(claim.measure.label, own, rival) for own in numbers]
        edges = record.get("edges")
        if edges is None:
            named["weakest point"] += "; a small grid, from before the protocol"
        found.append(
            {
                **named,
                "verdict": row["verdict"],
                "effect": _effect(row, percent),
                "seeds": row["seeds"],
                # Whether layer normalisation is said to be better.
                "for layer": claim.kind.startswith(("layer", "ln")),
                "data": data.replace("\n", "; "),
                # Before the protocol grids could not grow.
                "on an edge": edges is None
                or any(_concerns(claim, label) for label in edges),
                "percent": percent,
                "ratio": ratio,
            }
        )
    return found


def _percent(claim: Claim, difference: float, rival: float) -> float:
    if "log10" in claim.measure.label:
        return 100 * (10**difference - 1)
    return 100 * difference / abs(rival)


def _ratio(measure: str, difference: float, rival: float) -> float:
    """A measure divided by the rival's; of an NLL, the likelihoods' ratio."""
    if "log10" in measure:
        return 10**difference
    if re.search(r"nll\b|nats", measure, re.IGNORECASE):
        return math.exp(difference)
    return 1 + difference / abs(rival)


def _effect(row: dict[str, str], percent: list[float] | None) -> str:
    if percent is None:
        return f"diverged in {row['diverged']} of {row['seeds']} seeds"
    middle, low, high = (_rounded(float(row[name])) for name in NUMBERS)
    sign = "+" if percent[0] >= 0 else ""
    share = f"{sign}{_rounded(percent[0])} %"
    return f"{row['measure']} {middle} ({low} to {high}), {share}"


def _rounded(number: float) -> str:
    """The number with two digits and without an exponent."""
    return np.format_float_positional(float(f"{number:.2g}"), trim="-")


def _concerns(claim: Claim, label: Sequence[Any]) -> bool:
    """Whether a claim compares the runs of a label."""
    values = (claim.value, claim.rival_value, claim.base, None)
    return label[0] in (claim.kind, claim.rival) and all(
        value in values for value in label[1:]
    )


def table(drawn: Sequence[dict[str, Any]]) -> str:
    """The table, with links to the pages beside it."""
    lines, above = [], {"section": "", "data": ""}
    for row in drawn:
        words = re.findall("[a-z]+", row["section"].lower())
        link = f"[{row['section']}]({'_'.join(words)}.md)"
        shown = row | {"section": link}
        # A cell that repeats the row above stays empty.
        shown |= {key: "" for key in above if row[key] == above[key]}
        lines.append(
            {
                "section": shown["section"],
                "claim": row["claim"],
                "verdict": f"**{row['verdict']}**",
                "effect and 95 % interval": row["effect"],
                "data and scale": shown["data"],
                "weakest point": row["weakest point"],
            }
        )
        above = {key: row[key] for key in above}
    return tables.of_rows(lines)


def insert(path: Path, text: str) -> None:
    """Puts a table between the two lines of a page that mark its place."""
    before, rest = path.read_text("utf-8").split(START)
    after = rest.split(END)[1]
    files.write_text(path, f"{before}{START}\n{text}\n\n{END}{after}")


def draw(drawn: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws the paper's claims, and below them every pair, if there are any.

    All lines are layer normalisation by its rival, grouped by verdict. The
    type is large for the width, because phones show 400 pixels. An interval
    that the axis cuts off ends in an arrow.
    """
    found = {
        "The paper's claims": map(_line_of_claim, drawn),
        "At the end, vs plain": map(_line_of_pair, pairs.judged()),
    }
    panels = {title: _grouped(filter(None, of)) for title, of in found.items()}
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return
    rows = [len(lines) for lines in panels.values()]
    figure, grid = plt.subplots(
        len(panels),
        1,
        figsize=(4.5, 0.18 * sum(rows) + 0.7 * len(panels)),
        height_ratios=rows,
        layout="constrained",
        squeeze=False,
    )
    for axes, (title, lines) in zip(grid[:, 0], panels.items(), strict=True):
        _draw_panel(axes, lines)
        axes.set_title(title, x=-0.05, ha="right", fontweight="bold")
        axes.set_xlabel("better $\\leftarrow$  ratio  $\\rightarrow$ worse")
    plotting.save(figure, path, dpi=200)


class _Line(NamedTuple):
    """A ratio of layer normalisation to its rival, with its interval."""

    label: str
    ratio: Sequence[float]  # with both ends of the interval
    verdict: str


def _line_of_claim(row: dict[str, Any]) -> _Line | None:
    if row["ratio"] is None:
        return None
    verdict, ratio = pairs.VERDICTS[row["verdict"]], row["ratio"]
    if not row["for layer"]:
        verdict = {"better": "worse", "worse": "better"}.get(verdict, verdict)
        middle, low, high = ratio
        ratio = (1 / middle, 1 / high, 1 / low)
    return _Line(f"{row['section'].split()[0]} {row['name']}", ratio, verdict)


def _line_of_pair(pair: pairs.Pair) -> _Line:
    plain, layer = pair.ends
    middle, *ends, _ = verdicts.summary(layer - plain)
    ratio = tuple(
        _ratio(pair.row.column, difference, plain.mean())
        for difference in (middle, *ends)
    )
    verdict = NOTHING if pair.decides_nothing else pair.end
    return _Line(pair.row.short, ratio, verdict)


def _grouped(lines: Iterable[_Line]) -> list[_Line | str]:
    """The lines by verdict and ratio, with headings that count them."""
    found = sorted(lines, key=lambda line: line.ratio[0])
    grouped: list[_Line | str] = []
    for verdict in STYLES:
        own = [line for line in found if line.verdict == verdict]
        grouped += [f"{verdict}: {len(own)}", *own] if own else []
    return grouped


def _draw_panel(axes: Any, lines: Sequence[_Line | str]) -> None:
    axes.axvline(1, color="black", linewidth=1)
    # Labels of an axis, for which the layout makes room.
    beside = axes.twinx()
    for own in (axes, beside):
        own.set_ylim(len(lines) - 0.5, -0.7)
        own.tick_params(axis="y", length=0, pad=8)
        own.spines[["top", "right", "left"]].set_visible(False)
    for place, line in enumerate(lines):
        if isinstance(line, _Line):
            _draw_line(axes, place, line)
    labels = [own if isinstance(own, str) else own.label for own in lines]
    numbers = [
        "" if isinstance(own, str) else f"{own.ratio[0]:.2f}" for own in lines
    ]
    axes.set_yticks(range(len(lines)), labels)
    beside.set_yticks(range(len(lines)), numbers)
    for line, label in zip(lines, axes.get_yticklabels(), strict=True):
        if isinstance(line, str):
            colour, _ = STYLES[line.partition(":")[0]]
            label.set(color=colour, fontweight="bold")
    axes.set_xscale("log")
    axes.set_xlim(1 / REACH, REACH)
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.3)


def _draw_line(axes: Any, place: int, line: _Line) -> None:
    colour, marker = STYLES[line.verdict]
    middle, *ends = line.ratio
    cut = [max(1 / REACH, min(REACH, end)) for end in ends]
    axes.plot(cut, [place] * 2, color=colour, linewidth=2)
    style = {"color": colour, "clip_on": False}
    if ends[0] < 1 / REACH:
        axes.plot(1 / REACH, place, "<", **style)
    if ends[1] > REACH:
        axes.plot(REACH, place, ">", **style)
    if 1 / REACH < middle < REACH:
        axes.plot(middle, place, marker, **style)
