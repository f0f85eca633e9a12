"""Experiments of which a test changes some methods."""

import dataclasses
from collections.abc import Callable
from typing import Any

from common.experiment import Experiment


def changed(experiment: Experiment, **methods: Callable) -> Any:
    """The experiment with other methods, which get no `self`."""
    own = {name: staticmethod(method) for name, method in methods.items()}
    cls = type("Changed", (type(experiment),), own)
    fields = dataclasses.fields(experiment)
    return cls(**{f.name: getattr(experiment, f.name) for f in fields})
