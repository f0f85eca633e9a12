"""One figure of all verdicts: how far each kind lies from its rival."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from common import claims, files, plotting
from common.measures import Claim

# Differences beyond it are cut off, in percent.
REACH = 40.0
_COLOURS = {
    "agrees": "#0072B2",
    "equivalent": "#56B4E9",
    "undecided": "#777777",
    "disagrees": "#D55E00",
}


def rows(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The primary claims of kept comparisons, differences in percent.

    Claims without an interval (one seed, or runs that diverged) have no line.
    Differences of numbers are relative to the mean of the rival, those of
    logarithms to base 10 are of what they are taken of.
    """
    found = []
    for folder in folders:
        record = files.read_json(folder / "settings.json")["comparison"]
        known = {c.text: c for c in claims.OF[record["experiment"]].claims}
        for row in files.read_table(folder / "verdicts.csv"):
            if not row["verdict"] or not row["from"]:
                continue
            claim = known[row["claim"]]
            percent = {
                name: _percent(claim, float(row[name]), float(row["rival"]))
                for name in ("mean difference", "from", "to")
            }
            found.append(
                {
                    "comparison": folder.name,
                    "claim": row["claim"],
                    "verdict": row["verdict"],
                    "on an edge": any(
                        _concerns(claim, label)
                        for label in record.get("edges", ())
                    ),
                    **percent,
                }
            )
    return found


def _percent(claim: Claim, difference: float, rival: float) -> float:
    if "log10" in claim.measure.label:
        return 100 * (10**difference - 1)
    return 100 * difference / abs(rival)


def _concerns(claim: Claim, label: Sequence[Any]) -> bool:
    """Whether the runs of a label are among those that a claim compares."""
    values = (claim.value, claim.rival_value, claim.base, None)
    return label[0] in (claim.kind, claim.rival) and all(
        value in values for value in label[1:]
    )


def draw(drawn: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws rows below the names of their comparisons, one after the other.

    What is cut off ends in an arrow.
    """
    lines: list[tuple[str, dict[str, Any] | None]] = []
    for name, own in itertools.groupby(drawn, lambda row: row["comparison"]):
        lines.append((name, None))
        lines += [(row["claim"], row) for row in own]
    height = 0.24 * len(lines) + 1.0
    figure, axes = plt.subplots(figsize=(6.0, height), layout="constrained")
    axes.axvline(0, color="black", linewidth=1)
    for place, (_, row) in enumerate(lines):
        if row is not None:
            _line(axes, place, row)
    for verdict, colour in _COLOURS.items():
        if any(row["verdict"] == verdict for row in drawn):
            axes.plot([], [], "o-", color=colour, label=verdict)
    if any(row["on an edge"] for row in drawn):
        axes.plot([], [], "ko", mfc="white", label="best on a grid's edge")
    axes.set_yticks(range(len(lines)), [text for text, _ in lines])
    for label, (_, row) in zip(axes.get_yticklabels(), lines, strict=True):
        label.set_fontweight("bold" if row is None else "normal")
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-REACH, REACH)
    axes.set_xlabel("% of the rival; as claimed: below 0")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    plotting.save(figure, path)


def _line(axes: Any, place: int, row: dict[str, Any]) -> None:
    colour = _COLOURS[row["verdict"]]
    low, high = (max(-REACH, min(REACH, row[k])) for k in ("from", "to"))
    axes.plot([low, high], [place] * 2, color=colour, linewidth=2)
    for name, end, arrow in (("from", low, "<"), ("to", high, ">")):
        if row[name] != end:
            axes.plot(end, place, arrow, color=colour, clip_on=False)
    middle = row["mean difference"]
    if abs(middle) < REACH:
        ground = "white" if row["on an edge"] else colour
        axes.plot(middle, place, "o", color=colour, mfc=ground)
