"""A search for the best normalisation, size, learning rate and initial gain.

    python examples/tune.py sequential_mnist --tuner bayesian --max-trials 20

KerasTuner runs another script again and again. The results are a table
and the best model. All other flags are the script's; --epochs is the
number for each trial. Several processes can share a search: one chief, which
distributes trials and writes the results, and workers, all with the same flags
and these environment variables:

    KERASTUNER_ORACLE_IP=127.0.0.1 KERASTUNER_ORACLE_PORT=8000
    KERASTUNER_TUNER_ID=chief      (and worker0, worker1, ...)
"""

import importlib
import importlib.util
import math
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import ending, files, flags
from common.errors import InputError

EXPERIMENTS = (
    *("attentive_reader", "convolutional_networks", "draw_mnist", "everyday"),
    *("handwriting_generation", "order_embeddings"),
    *("permutation_invariant_mnist", "sequential_mnist", "skip_thoughts"),
)
TUNERS = ("random", "bayesian", "hyperband")
# The search chooses these, and the last ones are for single runs.
_ELSEWHERE = ("norm", "units", "learning-rate", "gain", "compare", "resume")
# Kinds with their own loss, which cannot be compared with other kinds' losses.
_ALONE = ("symmetric",)


def main(argv: Sequence[str] | None = None) -> int:
    args, rest = parse(argv)
    folder = Path(args.output_dir or f"runs/tune-{args.experiment}")
    files.check_folder(folder)
    if importlib.util.find_spec("keras_tuner") is None:
        raise InputError("a search needs KerasTuner: pip install '.[tune]'")
    record = vars(args) | {"flags": rest}
    del record["resume"], record["output_dir"]

    from common import runs

    name = os.environ.get("KERASTUNER_TUNER_ID", "chief")
    if "KERASTUNER_ORACLE_IP" in os.environ and "chief" not in name:
        # A worker, in the folder that its chief has opened.
        search(args, rest, folder)
        return 0
    with files.alone_in(folder):
        runs.open_folder(folder, record, args.resume)
        if (folder / "metrics.json").exists():
            print(f"{folder} is finished.")
            return 0
        return report(search(args, rest, folder), folder)


def parse(argv: Sequence[str] | None) -> tuple[Namespace, list[str]]:
    """The flags of a search, and those of the script."""
    parser = flags.Parser("tune.py", __doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT")
    size = {"type": flags.integer(1), "metavar": "N"}
    rate = {"type": flags.positive}
    for name, meaning, usual, how in (
        ("tuner", "KerasTuner's algorithm", "random", {"choices": TUNERS}),
        ("max_trials", "models to try, at most", 10, size),
        ("norm_kinds", "kinds to try", None, {"nargs": "+", "metavar": "KIND"}),
        ("unit_choices", "sizes to try", [32, 64, 128], size | {"nargs": "+"}),
        (
            *("learning_rates", "range of learning rates", [1e-4, 1e-2]),
            rate | {"nargs": 2, "metavar": ("LOW", "HIGH")},
        ),
        (
            *("gains", "initial gains to try", [0.1, 1.0]),
            rate | {"nargs": "+", "metavar": "X"},
        ),
        ("epochs", "epochs of a trial (default: the script's)", None, size),
        ("seed", "the seed", 0, {"type": flags.seed}),
        ("output_dir", "the folder of the results", None, {"metavar": "DIR"}),
        ("resume", "continue a search", None, {"action": "store_true"}),
    ):
        if usual is not None:
            meaning += f" (default: {usual})"
            how = how | {"default": usual}
        flags.Flag(name, meaning, **how).add_to(parser)
    args, rest = parser.parse_known_args(argv)
    for name in _ELSEWHERE:
        if f"--{name}" in rest:
            raise InputError(f"--{name} cannot be used in a search; see --help")
    script = importlib.import_module(args.experiment)
    try:
        script.main([*rest, "--check"])
    except SystemExit as end:
        if end.code:
            raise
    known = script.KINDS
    kinds = args.norm_kinds or [k for k in known if k not in _ALONE]
    for kind in kinds:
        if kind not in known:
            raise InputError(
                f"--norm-kinds: expected any of {', '.join(known)}, received "
                f"{kind}"
            )
        if kind in _ALONE and len(set(kinds)) > 1:
            raise InputError(
                f"--norm-kinds: expected only {kind}, because it has its own "
                f"loss, received {' '.join(kinds)}"
            )
    args.norm_kinds = kinds
    low, high = args.learning_rates
    if low >= high:
        raise InputError(
            "--learning-rates: expected a low and a higher number, received "
            f"{low:g} {high:g}"
        )
    return args, rest


def search(args: Namespace, rest: Sequence[str], folder: Path) -> Any:
    """Runs or continues all trials; returns the tuner."""
    import keras_tuner
    from common import runs
    from keras_tuner import errors

    from keras_ln import tuning

    script = importlib.import_module(args.experiment)
    base = {
        "random": keras_tuner.RandomSearch,
        "bayesian": keras_tuner.BayesianOptimization,
        "hyperband": keras_tuner.Hyperband,
    }[args.tuner]

    class Search(base):
        """A trial is a run of the script, in a folder of its own."""

        def run_trial(self, trial, *unused, **ignored):
            chosen = settings(trial.hyperparameters)
            own = folder / f"trial-{trial.trial_id}"
            words = [f"--{k}={v}" for k, v in chosen.items() if v is not None]
            words += [*rest, f"--seed={args.seed}", "--resume"]
            try:
                script.main([*words, f"--output-dir={own}"])
            except (OSError, InputError) as error:
                # KerasTuner would go on after others.
                kind = type("Fatal", (errors.FatalError, type(error)), {})
                raise kind(*error.args) from error
            rows = runs.history_of(own)
            found = runs.metrics_of(own) and min(r["val_loss"] for r in rows)
            return math.nan if found is None else found

    def settings(hp):
        norm, gain = tuning.choose_kind(
            hp, args.norm_kinds, args.gains, "norm", flags.WITHOUT_GAIN
        )
        low, high = args.learning_rates
        rate = hp.Float("learning_rate", low, high, sampling="log")
        return {
            "norm": norm,
            "gain": gain,
            "units": hp.Choice("units", args.unit_choices),
            "learning-rate": rate,
            "epochs": hp.values.get("tuner/epochs", args.epochs),
        }

    space = keras_tuner.HyperParameters()
    settings(space)
    how = {"max_trials": args.max_trials}
    if args.tuner == "hyperband":
        how = {"max_epochs": args.epochs or 10}
    tuner = Search(
        hyperparameters=space,
        objective=keras_tuner.Objective("val_loss", "min"),
        seed=args.seed + 1,  # KerasTuner takes 0 for none.
        directory=str(folder),
        project_name="search",
        # Trials may diverge one after the other.
        max_consecutive_failed_trials=args.max_trials + 1,
        **how,
    )
    if args.tuner == "hyperband":
        tuner.oracle.max_trials = args.max_trials
    try:
        tuner.search()
    except (KeyboardInterrupt, OSError) as error:
        error.__notes__ = [f"--resume continues the run in {folder}"]
        raise
    return tuner


def report(tuner: Any, folder: Path) -> int:
    """Writes table and best model; 1 if no trial had a result."""
    from common import runs
    from common.report import show_and_write

    trials = sorted(
        tuner.oracle.trials.values(),
        key=lambda t: t.score if t.status == "COMPLETED" else math.inf,
    )
    rows = []
    for trial in trials:
        values = trial.hyperparameters.values
        norm, finite = values["norm"], trial.status == "COMPLETED"
        has_gain = norm not in flags.WITHOUT_GAIN
        row = {"trial": int(trial.trial_id), "status": trial.status.lower()}
        row |= {"norm": norm, "gain": values["norm_gain"] if has_gain else ""}
        row |= {name: values[name] for name in ("units", "learning_rate")}
        rows.append(row | {"val_loss": trial.score if finite else ""})
    show_and_write(folder / "trials.csv", [*rows[0]], map(dict.values, rows))
    scored = [row for row in rows if row["val_loss"] != ""]
    if not scored:
        print("tune.py: no trial had a finite loss", file=sys.stderr)
        return 1
    best = folder / f"trial-{trials[0].trial_id}"
    for name in ("model.keras", "vocabulary.txt"):
        if (best / name).exists():
            with files.replacing(folder / name) as partial:
                shutil.copyfile(best / name, partial)
    results = scored[0] | dict(runs.metrics_of(best) or {})
    files.write_json(folder / "metrics.json", results)
    print(f"The table and the best model are in {folder}.")
    return 0


if __name__ == "__main__":
    ending.execute(main)
