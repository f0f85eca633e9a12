"""What a result has to be better than: the last rows of a comparison.

Chance, a trivial baseline, and the untrained models.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from common import files, runs, training
from common.experiment import Experiment


def measure(
    experiment: Experiment,
    plans: Sequence[Namespace],
    data: Any,
    folder: Path,
) -> list[dict[str, Any]]:
    """The floors, from `floors.json` if they were measured before.

    Returns:
        Dictionaries with `label`, the cells of the first columns, and
        `metrics`. Untrained models have the first seed.
    """
    path = folder / "floors.json"
    if path.exists():
        return files.read_json(path)
    found = [
        {"label": [name], "metrics": dict(metrics)}
        for name, metrics in experiment.floors(plans[0], data).items()
    ]
    for plan in (p for p in plans if p.seed == plans[0].seed):
        with training.environment(plan):
            metrics = dict(experiment.untrained(plan, data))
        keras.backend.clear_session()
        norm, *values = runs.label_of(experiment, plan)
        label = [f"{norm}, untrained", *values]
        found.append({"label": label, "metrics": metrics})
    files.write_json(path, found)
    return found
