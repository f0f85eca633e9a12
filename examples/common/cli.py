"""The flags of every experiment and the one way in which a script runs.

A script describes itself as an `Experiment` and passes it to `run`, which
checks everything before it trains anything: flags, environment, data, output
folder. An error ends in one sentence and exit code 2. Frameworks take seconds
to import, so they are imported only after the flags have been checked.
"""

import importlib
import itertools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from common import claims, ending, files, flags, grids
from common.errors import InputError, check_tensorflow
from common.experiment import Experiment


def find(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        InputError: if there is none; a file may name any module.
    """
    if name not in claims.OF:
        raise InputError(
            f"expected an experiment of {', '.join(claims.OF)}, received "
            f"{name!r}"
        )
    script, _, task = name.partition("-")
    module = importlib.import_module(script)
    return module.EXPERIMENTS[task] if task else module.EXPERIMENT


def run(experiment: Experiment, argv: Sequence[str] | None = None) -> int:
    """Runs a script.

    Returns:
        The exit code: 0; 1 if a loss became infinite or NaN; 2 if the input
        cannot be used.
    """
    parser = _parser(experiment)
    args = parser.parse_args(argv)
    try:
        check_tensorflow()
        planned = plans(experiment, args)
        name = experiment.name + ("" if args.compare else f"-{planned[0].norm}")
        folder = Path(args.output_dir or Path("runs") / name)
        files.check_folder(folder)
        if args.compare:
            # Before the frameworks' logs, which start with their import.
            print(
                f"{len(planned)} networks will be trained, one after the "
                f"other. The results go to {folder}."
            )

        from common import comparisons, single, training

        experiment = experiment.for_flags(planned[0])
        for plan in planned:
            training.check_environment(plan)
        data = experiment.load_data(planned[0])
        # With --tune there is less training data.
        learnt = training.learnt(args, data)
        for plan in planned:
            experiment.check(plan, learnt)
        record = single.describe(planned, args.compare, data)
        with files.alone_in(folder):
            single.open_folder(folder, record, args.resume)
            with ending.resumable(folder):
                if args.compare:
                    return comparisons.train_all(
                        experiment, planned, data, folder
                    )
                metrics = single.train_one(experiment, planned[0], data, folder)
                return int(metrics is None)
    except InputError as error:
        parser.error(str(error))


def default_seeds(experiment: Experiment, args: Namespace) -> list[int]:
    """The seeds without --seed: several if a claim is judged.

    The quick preset has one, so that a comparison takes minutes.
    """
    claim = args.tune or args.preset == "paper"
    if args.compare and claim and not args.smoke:
        return claims.seeds_of(experiment.name)
    return [0]


def parse(experiment: Experiment, argv: Sequence[str], prog: str) -> Namespace:
    """The flags of a script, as another program `prog` received them."""
    return _parser(experiment, prog).parse_args(argv)


def _parser(experiment: Experiment, prog: str | None = None) -> flags.Parser:
    parser = flags.Parser(
        prog or f"{experiment.script}.py",
        experiment.description,
        "\n\n".join(
            (
                flags.describe_presets(experiment.presets, experiment.smoke),
                grids.describe(experiment),
            )
        ),
    )
    add = parser.add_argument
    add(
        "--norm",
        choices=experiment.kinds,
        help=f"the normalisation (default: {experiment.default_kind})",
    )
    add(
        "--compare",
        action="store_true",
        help="train all kinds, print a table and draw one figure",
    )
    add(
        "--tune",
        action="store_true",
        help="with --compare: first find settings for each kind; see below",
    )
    flags.add_counts(
        parser,
        tune_epochs="epochs of the first runs of --tune (default: half of "
        "--epochs); the best three runs are repeated with --epochs",
    )
    add(
        "--preset",
        choices=tuple(experiment.presets),
        default="quick",
        help="the defaults of other flags, listed below (default: quick)",
    )
    add(
        "--data",
        metavar="embedded|tfds|PATH",
        help=f"embedded: {experiment.embedded}; tfds: a data set that "
        "tensorflow-datasets loads; or the path of the published files",
    )
    add("--data-dir", metavar="DIR", help="the folder of tensorflow-datasets")
    flags.add_counts(
        parser,
        epochs="passes over the training data",
        batch_size="examples in a batch",
        units="size of the hidden layers",
    )
    add(
        "--decay",
        choices=("cosine", "none"),
        help="how the learning rate falls to zero at the end of the run "
        "(default: cosine with --tune; else none, so that a run can stop or "
        "continue anywhere)",
    )
    flags.add_numbers(
        parser,
        learning_rate="learning rate at the start",
        scale="factor of the initial matrices, except for states and "
        "word vectors (default: 1)",
    )
    add(
        "--seed",
        type=flags.seed,
        nargs="+",
        metavar="N",
        help="the seed, or with --compare several, for means and ranges "
        "(default: 0; with --compare and --tune or --preset paper from 100 "
        "on)",
    )
    flags.add_counts(
        parser,
        evaluate_every="updates between evaluations and backups (default: "
        "one epoch)",
    )
    add(
        "--output-dir",
        metavar="DIR",
        help="the folder of the results (default: runs/SCRIPT)",
    )
    add("--resume", action="store_true", help="continue a killed run")
    add(
        "--distribute",
        choices=("none", "data-parallel"),
        default="none",
        help="split every batch over the devices (default: none)",
    )
    add(
        "--mixed-precision",
        choices=("float16", "bfloat16"),
        help="compute in half precision (default: in float32)",
    )
    add("--tensorboard", action="store_true", help="write TensorBoard logs")
    add(
        "--smoke",
        action="store_true",
        help="run for a minute at most, to see that it works",
    )
    flags.add_numbers(
        parser,
        gain="initial gain of the normalisations (default: the layers')",
    )
    if experiment.memory is not None:
        flags.add_counts(parser, least=2, forget_steps=flags.FORGET_STEPS)
    experiment.add_arguments(parser)
    return parser


def plans(experiment: Experiment, args: Namespace) -> list[Namespace]:
    """The flags of every run, completed by --smoke and the preset."""
    if args.compare and args.norm:
        raise InputError("--compare trains all kinds; leave out --norm")
    seeds = args.seed or default_seeds(experiment, args)
    if len(seeds) > 1 and not args.compare:
        raise InputError("several values of --seed need --compare")
    if len(set(seeds)) < len(seeds):
        raise InputError(
            "--seed: expected different values, received "
            f"{' '.join(map(str, seeds))}"
        )
    folds = experiment.folds
    if folds and len({seed % folds for seed in seeds}) < len(seeds):
        raise InputError(
            "--seed: expected seeds that test different parts, which are "
            f"{folds}, so that seeds {folds} apart test the same; received "
            f"{' '.join(map(str, seeds))}"
        )
    grids.check_flags(experiment, args)
    given = vars(args)
    varied = {"norm": [args.norm or experiment.default_kind]}
    if args.compare:
        varied["norm"] = list(experiment.kinds)
        for name, values in experiment.compared.items():
            varied[name] = (
                list(values) if given[name] is None else [given[name]]
            )
    defaults = {
        "data": "embedded",
        "decay": "cosine" if args.tune else "none",
        **experiment.presets[args.preset],
        **({"data": "embedded", **experiment.smoke} if args.smoke else {}),
    }
    completed = given | {
        name: value for name, value in defaults.items() if given[name] is None
    }
    if experiment.embeddings is not None:
        completed["embeddings"] = experiment.embeddings
    if completed["data"] not in ("embedded", "tfds"):
        completed["data"] = flags.absolute(completed["data"])
        if not Path(completed["data"]).exists():
            raise InputError(
                "--data: expected embedded, tfds or a path that exists, "
                f"received {args.data!r}"
            )
    if args.data_dir is not None:
        completed["data_dir"] = flags.absolute(args.data_dir)
        if completed["data"] != "tfds":
            raise InputError("--data-dir belongs to --data tfds")
    planned = []
    for values in itertools.product(*varied.values()):
        chosen = completed | dict(zip(varied, values, strict=True))
        if chosen["norm"] in experiment.without_gain:
            chosen["gain"] = None
        for seed in seeds:
            plan = Namespace(**chosen | {"seed": seed})
            if plan not in planned:
                experiment.check_flags(plan)
                planned.append(plan)
    return planned
