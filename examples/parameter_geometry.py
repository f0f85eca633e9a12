"""The geometry of normalised models: section 5 of the paper in numbers.

Prints Table 1 as measured, and shows

    - that the Fisher information is the metric of the Kullback-Leibler
      divergence, and what eq. 13 leaves out under layer normalisation,
    - how the size of the weights makes the steps of normalised models
      smaller, of all weights and of those of a single unit.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from common import ending, studies


def procedure() -> Callable[..., None]:
    """What measures, imported when the flags are known to be right."""
    import parameter_geometry_task

    return parameter_geometry_task.measure


STUDY = studies.Study(
    name=Path(__file__).stem,
    description=__doc__,
    sizes={"examples": (64, 8), "points": (11, 3)},
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return studies.run(STUDY, argv)


if __name__ == "__main__":
    ending.execute(main)
