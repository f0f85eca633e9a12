"""Hidden-to-hidden dynamics over many steps: section 3.1 of the paper.

Recurrent layers with and without layer normalisation, whose recurrent weights
are orthogonal matrices times a scale, run over random inputs. The paper's
claim: plain layers have states and gradients that grow or shrink with the
scale, those of layer-normalised ones are stable.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from common import ending, studies


def procedure() -> Callable[..., None]:
    """What measures, imported when the flags are known to be right."""
    import recurrent_dynamics_task

    return recurrent_dynamics_task.measure


STUDY = studies.Study(
    name=Path(__file__).stem,
    description=__doc__,
    sizes={"steps": (500, 12), "batch_size": (8, 2), "units": (64, 6)},
    procedure=procedure,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return studies.run(STUDY, argv)


if __name__ == "__main__":
    ending.execute(main)
