"""Updates the generated tables of the pages: python tests/docs/write_tables.py.

Run it after a measurement; test_numbers.py then names the numbers of the text
that have to follow.
"""

import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / own) for own in ("tests", "tests/support", "examples", "")
]

from docs import evidence, measured  # noqa: E402

MODES = ("training step", "inference")
TABLES = {
    "benchmarks/README.md": [
        functools.partial(measured.timed, *what, mode, *more)
        for what, *more in (
            *((("LNLSTM", backend),) for backend in measured.NAMES),
            *((("LNGRU", b), "ABC") for b in measured.NAMES),
            *((("LNLSTM", b), "ABC", True) for b in ("tensorflow", "jax")),
            (("LNLSTM", "jax_gpu"), "ABCD"),
            (("LNGRU", "jax_gpu"), "ABC"),
        )
        for mode in MODES
    ],
    "README.md": (evidence.some, measured.in_short),
    "docs/should_i_use_it.md": (
        *(evidence.working, evidence.settings, evidence.evidence),
    ),
    "docs/performance.md": (
        *(measured.sizes, measured.inference, measured.of_torch, measured.gru),
        *(measured.gpu, measured.streaming, measured.models),
    ),
}


def written(text, table):
    """The text with the table in place of the one with the same heading."""
    heading, *_ = lines = list(table())
    before, found, after = text.partition(f"{heading}\n")
    if not found:
        raise ValueError(f"no table has the heading {heading}")
    _, end, after = after.partition("\n\n")
    return before + "\n".join(lines) + "\n" + end[1:] + after


def updated(page):
    """The text of a page with its tables as they are measured now."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for table in TABLES[page]:
        text = written(text, table)
    return text


if __name__ == "__main__":
    for page in TABLES:
        (ROOT / page).write_text(updated(page), encoding="utf-8")
