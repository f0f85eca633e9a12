"""Writes the tables of pages anew: python tests/docs/write_tables.py.

What was measured since comes into them; test_numbers.py names the numbers of
the text that have to follow.
"""

import functools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / own) for own in ("tests", "examples", "")]

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
    "README.md": (measured.sizes,),
    "docs/should_i_use_it.md": (evidence.evidence, evidence.settings),
    "docs/performance.md": (
        *(measured.sizes, measured.inference, measured.of_torch),
        measured.gpu,
    ),
}


def written(text, table):
    """The text with the table in place of the one with the same heading."""
    heading, *_ = lines = list(table())
    before, _, after = text.partition(f"{heading}\n")
    return before + "\n".join(lines) + "\n\n" + after.partition("\n\n")[2]


if __name__ == "__main__":
    for page, tables in TABLES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        for table in tables:
            text = written(text, table)
        path.write_text(text, encoding="utf-8")
