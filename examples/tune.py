"""A search for the best normalisation, size, learning rate and initial gain.

    python examples/tune.py sequential_mnist --tuner bayesian --max-trials 20

KerasTuner tries models of another script. The results are a table, a figure and
the best model. All other flags are the script's; --epochs is the number for
each trial. Several processes can share a search: one chief, which distributes
trials and writes the results, and workers, all with the same flags and these
environment variables:

    KERASTUNER_ORACLE_IP=127.0.0.1 KERASTUNER_ORACLE_PORT=8000
    KERASTUNER_TUNER_ID=chief      (and worker0, worker1, ...)
"""

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import everyday
from common import cli, ending, files, flags
from common.errors import InputError, check_tensorflow
from common.experiment import Experiment

EXPERIMENTS = (
    "attentive_reader",
    "convolutional_networks",
    "draw_mnist",
    *(
        f"everyday-{task}"
        for task in everyday.TASKS
        if task not in everyday.PACKAGED
    ),
    "handwriting_generation",
    "order_embeddings",
    "permutation_invariant_mnist",
    "sequential_mnist",
    "skip_thoughts",
)
TUNERS = ("random", "bayesian", "hyperband")
# The search varies these; a flag would fix them.
_SEARCHED = ("norm", "units", "learning_rate", "gain")
# Flags for runs only; a search evaluates after every pass.
_ELSEWHERE = (
    *("compare", "tune", "scale", "decay"),
    *("evaluate_every", "tensorboard"),
)
# Kinds with their own loss, which cannot be compared with other kinds' losses.
_ALONE = ("symmetric",)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    argv = sys.argv[1:] if argv is None else argv
    parser = _parser(argv)
    own, rest = parser.parse_known_args(argv)
    experiment = cli.find(own.experiment)
    given = cli.parse(experiment, rest, prog=f"tune.py {own.experiment}")
    try:
        check_tensorflow()
        if importlib.util.find_spec("keras_tuner") is None:
            raise InputError("a search needs KerasTuner: pip install '.[tune]'")
        args = _complete(experiment, own, given)
        folder = Path(args.output_dir or f"runs/tune-{experiment.name}")
        files.check_folder(folder)

        import tune_task

        return tune_task.run(experiment, args, folder)
    except InputError as error:
        parser.error(str(error))


def _parser(argv: Sequence[str]) -> flags.Parser:
    # The help of a search also shows the sizes of its experiment.
    named = next((word for word in argv if word in EXPERIMENTS), None)
    presets = None
    if named is not None:
        experiment = cli.find(named)
        presets = flags.describe_presets(experiment.presets, experiment.smoke)
    parser = flags.Parser("tune.py", __doc__, presets)
    add = parser.add_argument
    add(
        "experiment",
        choices=EXPERIMENTS,
        metavar="EXPERIMENT",
        help=f"a script: {', '.join(EXPERIMENTS)}",
    )
    add(
        "--tuner",
        choices=TUNERS,
        default="random",
        help="KerasTuner's algorithm (default: random)",
    )
    add(
        "--max-trials",
        type=flags.positive_integer,
        default=10,
        metavar="N",
        help="number of models to try (default: 10); hyperband tries no more, "
        "and fewer with few --epochs",
    )
    add(
        "--norm-kinds",
        nargs="+",
        metavar="KIND",
        help="kinds to try (default: all kinds with the same loss)",
    )
    add(
        "--unit-choices",
        nargs="+",
        type=flags.positive_integer,
        metavar="N",
        help="units to try (default: half, once and twice the preset's)",
    )
    add(
        "--learning-rates",
        nargs=2,
        type=flags.positive_number,
        metavar=("LOW", "HIGH"),
        help="range of rates (default: a tenth to ten times the preset's)",
    )
    add(
        "--gains",
        nargs="+",
        type=flags.positive_number,
        default=[0.1, 1.0],
        metavar="X",
        help="initial gains to try (default: 0.1 1.0)",
    )
    return parser


def _complete(
    experiment: Experiment, own: Namespace, given: Namespace
) -> Namespace:
    """The flags of a trial, without the searched ones."""
    for name in (*_ELSEWHERE, *_SEARCHED):
        if vars(given).get(name):
            raise InputError(
                f"--{name.replace('_', '-')} cannot be used in a search; see "
                "--help for the flags of a search"
            )
    if given.seed and len(given.seed) > 1:
        raise InputError(
            "--seed: expected one value for all trials, received "
            f"{' '.join(map(str, given.seed))}"
        )
    kinds = own.norm_kinds or [k for k in experiment.kinds if k not in _ALONE]
    unknown = set(kinds) - set(experiment.kinds)
    if unknown:
        raise InputError(
            f"--norm-kinds: expected any of {', '.join(experiment.kinds)}, "
            f"received {', '.join(sorted(unknown))}"
        )
    for kind in set(kinds).intersection(_ALONE):
        if len(set(kinds)) > 1:
            raise InputError(
                f"--norm-kinds: expected only {kind}, because it has its own "
                f"loss, received {' '.join(kinds)}"
            )
    (plan,) = cli.plans(experiment, given)
    for kind in kinds:
        experiment.check_flags(Namespace(**vars(plan) | {"norm": kind}))
    args = Namespace(**vars(plan) | vars(own))
    args.norm_kinds = kinds
    args.evaluate_every = None  # The preset's.
    if not args.unit_choices:
        units = plan.units
        args.unit_choices = sorted({max(1, units // 2), units, 2 * units})
    if not args.learning_rates:
        args.learning_rates = [plan.learning_rate / 10, 10 * plan.learning_rate]
    low, high = args.learning_rates
    if low >= high:
        raise InputError(
            "--learning-rates: expected a low and a higher number, received "
            f"{low:g} {high:g}"
        )
    # They have values only in a trial.
    for name in _SEARCHED:
        delattr(args, name)
    return args


if __name__ == "__main__":
    ending.execute(main)
