"""The generalised linear models of `parameter_geometry.py`."""

import numpy as np

FEATURES, UNITS = 5, 4


def build_model(
    kind: str | None, random: np.random.Generator
) -> tuple[np.ndarray, ...]:
    """Draws the parameters: kernel (D, U), bias (U) and, normalised, gain (U).

    Args:
        kind: None, "batch", "weight" or "layer".
        random: the source of chance.
    """
    parameters = (
        random.normal(size=(FEATURES, UNITS)),
        0.3 * random.normal(size=UNITS),
        1 + 0.2 * random.normal(size=UNITS),
    )
    return parameters[: 2 if kind is None else 3]
