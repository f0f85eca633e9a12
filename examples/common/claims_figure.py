"""One table and one figure of the claims that matter most.

`results/claims.csv` names them, with what is weakest about each; all else is
from what is kept.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from common import claims, files, plotting, tables
from common.measures import Claim

NAMED = Path(__file__).resolve().parents[1] / "results" / "claims.csv"
# The lines of a page between which the table stands.
START, END = "<!-- of results.py draw -->\n", "<!-- until here -->\n"
NUMBERS = ("mean difference", "from", "to")
# Differences beyond it are cut off, in percent.
REACH = 40.0
_COLOURS = {
    "agrees": "#0072B2",
    "equivalent": "#56B4E9",
    "undecided": "#777777",
    "disagrees": "#D55E00",
}


def rows(kept: Path) -> list[dict[str, Any]]:
    """The claims of `NAMED` whose comparisons are kept, in its order.

    Args:
        kept: the folder of kept comparisons.

    Returns:
        The rows of the file, with the `verdict`, the `effect` in words,
        `data`, whether a winner lies `on an edge` of its grid, and the
        difference and its interval in percent, None without an interval.
        Differences are relative to the mean of the rival; a difference of
        logarithms to base 10 becomes one of their arguments.
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
        percent = None
        if row["from"]:
            percent = [
                _percent(claim, float(row[name]), float(row["mean of rival"]))
                for name in NUMBERS
            ]
        edges = record.get("edges")
        if edges is None:
            named["weakest point"] += "; a small grid, from before the protocol"
        found.append(
            {
                **named,
                "verdict": row["verdict"],
                "effect": _effect(row, percent),
                "data": data.replace("\n", "; "),
                # Before the protocol grids could not grow.
                "on an edge": edges is None
                or any(_concerns(claim, label) for label in edges),
                "percent": percent,
            }
        )
    return found


def _percent(claim: Claim, difference: float, rival: float) -> float:
    if "log10" in claim.measure.label:
        return 100 * (10**difference - 1)
    return 100 * difference / abs(rival)


def _effect(row: dict[str, str], percent: list[float] | None) -> str:
    if percent is None:
        return f"diverged in {row['diverged']} of {row['seeds']} seeds"
    middle, low, high = (f"{float(row[name]):.2g}" for name in NUMBERS)
    return f"{row['measure']} {middle} ({low} to {high}), {percent[0]:+.2g} %"


def _concerns(claim: Claim, label: Sequence[Any]) -> bool:
    """Whether a claim compares the runs of a label."""
    values = (claim.value, claim.rival_value, claim.base, None)
    return label[0] in (claim.kind, claim.rival) and all(
        value in values for value in label[1:]
    )


def table(drawn: Sequence[dict[str, Any]], page: str = "") -> str:
    """The table for two minutes; `page` is where the sections are."""
    lines, above = [], {"section": "", "data": ""}
    for row in drawn:
        words = row["section"].lower().replace(" ", "-")
        anchor = re.sub(r"[^a-z0-9-]", "", words)
        shown = row | {"section": f"[{row['section']}]({page}#{anchor})"}
        # What is as in the row above is not said again.
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
    """Draws a line per claim that has an interval, if there is any.

    What is cut off ends in an arrow.
    """
    drawn = [row for row in drawn if row["percent"] is not None]
    if not drawn:
        return
    height = 0.3 * len(drawn) + 1.2
    with plt.rc_context({"font.size": 12}):
        figure, axes = plt.subplots(figsize=(6, height), layout="constrained")
    axes.axvline(0, color="black", linewidth=1)
    for place, row in enumerate(drawn):
        _line(axes, place, row)
    for verdict, colour in _COLOURS.items():
        if any(row["verdict"] == verdict for row in drawn):
            axes.plot([], [], "o-", color=colour, label=verdict)
    if any(row["on an edge"] for row in drawn):
        axes.plot([], [], "ko", mfc="white", label="best on a grid's edge")
    names = [
        f"{row['section'].split()[0]} {row['name']}"
        if row["section"][0].isdigit()
        else row["name"]
        for row in drawn
    ]
    axes.set_yticks(range(len(drawn)), names)
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.set_xlim(-REACH, REACH)
    figure.supxlabel("% of the rival; as claimed: below 0", fontsize="medium")
    axes.tick_params(axis="y", length=0, pad=10)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    plotting.save(figure, path)


def _line(axes: Any, place: int, row: dict[str, Any]) -> None:
    colour = _COLOURS[row["verdict"]]
    middle, *ends = row["percent"]
    cut = [max(-REACH, min(REACH, end)) for end in ends]
    axes.plot(cut, [place] * 2, color=colour, linewidth=2)
    style = {"color": colour, "clip_on": False}
    if row["on an edge"]:
        style["mfc"] = "white"
    if ends[0] < -REACH:
        axes.plot(-REACH, place, "<", **style)
    if ends[1] > REACH:
        axes.plot(REACH, place, ">", **style)
    if abs(middle) < REACH:
        axes.plot(middle, place, "o", **style)
