"""The small grid that `--compare --tune` tries for every kind.

It has as many points for each kind: three learning rates times the values of
one more flag, the initial scale or gain. They run with a seed of their own, on
a part of the training data, and are judged by the rest of them: neither the
test part nor the seeds that are reported have a say in the choice.
"""

import itertools
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from common.errors import InputError

if TYPE_CHECKING:
    from common.cli import Experiment

# None of those that are reported by default.
SEED = 1_000

RATE_FACTORS = (0.3, 1.0, 3.0)
# Of the kinds without gain where the others have a choice of gains.
SCALES = (0.3, 1.0, 3.0)


def second(experiment: "Experiment", norm: str) -> tuple[str, list[float]]:
    """The flag beside the learning rate that a kind's grid has."""
    name, values = experiment.tuned
    if name == "gain" and norm in experiment.without_gain:
        return "scale", [*SCALES]
    return name, [*values]


def varied(experiment: "Experiment") -> list[str]:
    """The flags that the grids of all kinds choose."""
    names = (second(experiment, norm)[0] for norm in experiment.kinds)
    return ["learning_rate", *dict.fromkeys(names)]


def points(experiment: "Experiment", plan: Namespace) -> list[dict[str, Any]]:
    """What each run of the grid sets, around the preset's learning rate."""
    name, values = second(experiment, plan.norm)
    rates = [float(f"{f * plan.learning_rate:.3g}") for f in RATE_FACTORS]
    return [
        {"learning_rate": rate, name: value}
        for rate, value in itertools.product(rates, values)
    ]


def run_of(plan: Namespace, point: dict[str, Any]) -> Namespace:
    """The flags of a run of the grid."""
    epochs = plan.tune_epochs or -(-plan.epochs // 4)
    return Namespace(
        **vars(plan)
        | {"seed": SEED, "epochs": epochs, "evaluate_every": None}
        | point
    )


def check_flags(experiment: "Experiment", args: Namespace) -> None:
    """Refuses flags that do not go with the presence or absence of --tune."""
    if not args.tune:
        if args.tune_epochs:
            raise InputError("--tune-epochs belongs to --tune")
        return
    if not args.compare:
        raise InputError("--tune belongs to --compare; tune.py searches alone")
    for name in varied(experiment)[1:]:
        if vars(args)[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"--tune chooses {flag}; leave it out")
    if args.seed and SEED in args.seed:
        raise InputError(f"--seed: {SEED} is the seed of --tune")


def describe(experiment: "Experiment") -> str:
    """What --tune tries, for --help."""
    name, values = experiment.tuned
    shown = " ".join(f"{value:g}" for value in values)
    lines = [f"  --{name.replace('_', '-')} {shown}"]
    if name == "gain" and experiment.without_gain:
        shown = " ".join(f"{value:g}" for value in SCALES)
        kinds = ", ".join(experiment.without_gain)
        lines.append(f"  --scale {shown} instead ({kinds})")
    factors = " ".join(f"{factor:g}" for factor in RATE_FACTORS)
    return "\n".join(
        (
            "what --tune tries for each kind, every pair of them, judged by a "
            "part of the\ntraining data that is held out:",
            f"  --learning-rate times {factors}",
            *lines,
        )
    )
