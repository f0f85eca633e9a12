"""The grid that `--compare --tune` tries for every kind.

It starts with equally many points for each kind: three learning rates times
three values of one more flag, the initial scale or gain. If cells can forget,
every point is tried with usual biases and with --forget-steps. The grid grows
until the best point has neighbours on all sides. If its runs are shorter than
the comparison, the best three points run again at full length and choose, and
the grid grows around the best of them, too. All runs have separate seeds and
are judged by a part of the training data: the test part and the reported seeds
do not influence the choice.
"""

import itertools
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from common.errors import InputError
from common.experiment import Experiment

# These seeds are not reported by default; the second is for the points around
# the best one.
SEEDS = (1_000, 1_001)
# How often a grid may grow.
EXTENSIONS = 3

# How many points of shorter runs are tried at full length.
FINALISTS = 3

# The places of the learning rate and of the other flag; of kinds that may have
# --forget-steps, a third number is 1 with it and 0 without.
Point = tuple[int, ...]
# The scales of kinds without a gain, if the other kinds choose a gain.
SCALES = (0.3, 1.0, 3.0)


def spaced(place: int) -> float:
    """The values of a grid, 0.1, 0.3, 1, 3, 10; 1 is at place 0."""
    return float(f"{(1, 3)[place % 2]}e{place // 2}")


def second(experiment: Experiment, norm: str) -> tuple[str, list[float]]:
    """The second flag of a kind's grid, beside the learning rate."""
    name, values = experiment.tuned
    if name == "gain" and norm in experiment.without_gain:
        return "scale", [*SCALES]
    return name, [*values]


def varied(experiment: Experiment) -> list[str]:
    """The flags that the grids of all kinds choose."""
    names = (second(experiment, norm)[0] for norm in experiment.kinds)
    found = ["learning_rate", *dict.fromkeys(names)]
    return found if experiment.memory is None else [*found, "forget_steps"]


def start(experiment: Experiment, norm: str) -> list[Point]:
    """The points with which a kind's grid starts."""
    values = second(experiment, norm)[1]
    places = [k for k in range(-9, 10) if spaced(k) in values]
    biases = () if experiment.memory is None else ((0, 1),)
    return [*itertools.product((-1, 0, 1), places, *biases)]


def settings(
    experiment: Experiment, plan: Namespace, point: Point
) -> dict[str, Any]:
    """The flags of a point, around the preset's learning rate."""
    rate, value = map(spaced, point[:2])
    found = {
        "learning_rate": float(f"{rate * plan.learning_rate:.3g}"),
        second(experiment, plan.norm)[0]: value,
    }
    if experiment.memory is not None:
        # After one step at most there is nothing to choose.
        steps = plan.forget_steps or max(2, experiment.memory(plan))
        found["forget_steps"] = steps if point[2] else None
    return found


def neighbours(point: Point) -> list[Point]:
    """The four points around one, with the same biases."""
    x, y, *rest = point
    around = ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1))
    return [(*place, *rest) for place in around]


def search(
    points: list[Point],
    score: Callable[[Point, int], float],
    full: Callable[[Point, int], float] | None = None,
) -> tuple[Point, dict[Point, list[float]], dict[Point, list[float]]]:
    """Tries points, and more until the best one lies among others.

    The best point, its neighbours, and the same with other biases are tried
    with a second seed.

    Args:
        points: the first points.
        score: from a point and a seed to a score; lower is better.
        full: the same for runs of full length, if the runs of `score` are
            shorter. The best three points then run with it, with both seeds,
            and choose; if the best of them is on the edge, the grid grows
            around it, too.

    Returns:
        The best point, the scores of all points, for one seed or two, and the
        scores of `full`.
    """
    scores = {point: [score(point, SEEDS[0])] for point in points}
    finals: dict[Point, list[float]] = {}
    extensions = 0
    while True:
        best, extensions = _grow(scores, score, extensions)
        if full is None:
            return best, scores, finals
        for point in _ranked(scores, scores)[:FINALISTS]:
            if point not in finals:
                finals[point] = [full(point, seed) for seed in SEEDS]
        best = _ranked(finals, scores)[0]
        missing = [p for p in neighbours(best) if p not in scores]
        if not missing or extensions == EXTENSIONS:
            return best, scores, finals
        extensions += 1
        scores |= {point: [score(point, SEEDS[0])] for point in missing}


def _grow(
    scores: dict[Point, list[float]],
    score: Callable[[Point, int], float],
    extensions: int,
) -> tuple[Point, int]:
    """Adds points until the best one has tried neighbours on all sides.

    Returns:
        That point, and how often the grid has grown.
    """
    while True:
        best = _ranked(scores, scores)[0]
        around = neighbours(best)
        missing = [point for point in around if point not in scores]
        if missing and extensions < EXTENSIONS:
            extensions += 1
            scores |= {point: [score(point, SEEDS[0])] for point in missing}
            continue
        beside = [point for point in scores if point[:2] == best[:2]]
        once = [p for p in (*beside, *around) if len(scores.get(p, "--")) < 2]
        if not once:
            return best, extensions
        for point in once:
            scores[point].append(score(point, SEEDS[1]))


def is_on_edge(best: Point, scores: Mapping[Point, Any]) -> bool:
    """Whether a neighbour of the best point was not tried."""
    return any(point not in scores for point in neighbours(best))


def _ranked(
    scores: Mapping[Point, list[float]], tried: Mapping[Point, Any]
) -> list[Point]:
    """The points by their means; among equal ones, inner points first."""

    def order(point):
        mean = sum(scores[point]) / len(scores[point])
        return mean, is_on_edge(point, tried)

    return sorted(scores, key=order)


def epochs(plan: Namespace) -> int:
    """The epochs of the first runs of a grid."""
    return plan.tune_epochs or -(-plan.epochs // 2)


def run_of(plan: Namespace, seed: int, chosen: Mapping[str, Any]) -> Namespace:
    """The flags of a run of the grid, which holds out no further part."""
    own = {"seed": seed, "epochs": epochs(plan), "tune": False}
    return Namespace(**vars(plan) | own | chosen)


def check_flags(experiment: Experiment, args: Namespace) -> None:
    """Refuses flags that do not go with the presence or absence of --tune."""
    if not args.tune:
        if args.tune_epochs:
            raise InputError("--tune-epochs belongs to --tune")
        return
    if not args.compare:
        raise InputError("--tune needs --compare; tune.py searches without it")
    for name in varied(experiment)[1:]:
        if name != "forget_steps" and vars(args)[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"--tune chooses {flag}; leave it out")
    for seed in SEEDS:
        if seed in (args.seed or ()):
            raise InputError(f"--seed: {seed} is a seed of --tune")


def describe(experiment: Experiment) -> str:
    """The points that --tune tries, for --help."""
    name, values = experiment.tuned
    shown = " ".join(f"{value:g}" for value in values)
    lines = [f"  --{name.replace('_', '-')} {shown}"]
    if name == "gain" and experiment.without_gain:
        shown = " ".join(f"{value:g}" for value in SCALES)
        kinds = ", ".join(experiment.without_gain)
        lines.append(f"  --scale {shown} instead ({kinds})")
    if experiment.memory is not None:
        lines.append("  --forget-steps, and none")
    factors = " ".join(f"{spaced(place):g}" for place in (-1, 0, 1))
    return "\n".join(
        (
            "points that --tune tries for each kind, in all combinations, "
            "judged by a\nheld-out part of the training data:",
            f"  --learning-rate times {factors}",
            *lines,
            "and points around the best one, until it is not on the edge; then "
            "the best three\nin runs of --epochs, which choose",
        )
    )
