"""What a result has to be better than: rows below those of a comparison.

Chance, a trivial baseline, and the untrained models.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from common import files, runs, training

if TYPE_CHECKING:
    from common.cli import Experiment


def measure(
    experiment: "Experiment",
    procedure: runs.Procedure,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """The floors, from `floors.json` if they were measured before.

    Returns:
        Dictionaries with `label`, the cells of the first columns, and
        `metrics`. Untrained models are those of the first seed.
    """
    path = folder / "floors.json"
    if path.exists():
        return files.read_json(path)
    found = [
        {"label": [name], "metrics": dict(metrics)}
        for name, metrics in procedure.floors(plans[0], data).items()
    ]
    if procedure.untrained is not None:
        for plan in (p for p in plans if p.seed == plans[0].seed):
            with training.environment(plan):
                metrics = dict(procedure.untrained(plan, data))
            keras.backend.clear_session()
            norm, *values = runs.label_of(experiment, plan)
            label = [f"{norm}, untrained", *values]
            found.append({"label": label, "metrics": metrics})
    files.write_json(path, found)
    return found
