"""A search for the best normalisation, size, learning rate and initial gain.

    python examples/tune.py sequential_mnist --tuner bayesian --max-trials 20

KerasTuner tries models of another script, and what it found is written as a
table, a figure and the best model. The other flags are those of the script;
--epochs is for each trial. Several processes can share a search: one chief,
which hands out trials and writes the results, and workers, all with the same
flags and these environment variables:

    KERASTUNER_ORACLE_IP=127.0.0.1 KERASTUNER_ORACLE_PORT=8000
    KERASTUNER_TUNER_ID=chief      (and worker0, worker1, ...)
"""

import argparse
import importlib
import importlib.util
import math
import os
import socket
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
from common import cli, files, plotting, runs, tables, training
from common.errors import InputError

from keras_ln import tuning

EXPERIMENTS = (
    "attentive_reader",
    "convolutional_networks",
    "draw_mnist",
    "handwriting_generation",
    "order_embeddings",
    "permutation_invariant_mnist",
    "sequential_mnist",
    "skip_thoughts",
)
TUNERS = ("random", "bayesian", "hyperband")
# What the search varies, and a flag would fix.
_SEARCHED = ("norm", "units", "learning_rate", "gain")
# What belongs to runs; a search evaluates after every pass.
_ELSEWHERE = ("compare", "evaluate_every", "tensorboard")
# Kinds of the scripts that have no gain.
_WITHOUT_GAIN = ("none", "symmetric", "weight")
# Kinds with a loss of their own, which says nothing beside others' losses.
_ALONE = ("symmetric",)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    parser = _parser()
    own, rest = parser.parse_known_args(argv)
    experiment = importlib.import_module(own.experiment).EXPERIMENT
    given = cli.parse(experiment, rest, prog=f"tune.py {own.experiment}")
    try:
        if importlib.util.find_spec("keras_tuner") is None:
            raise InputError(
                "a search needs KerasTuner: pip install 'keras-ln[tune]'"
            )
        args = _complete(experiment, own, given)
        training.check_environment(args)
        data = experiment.load_data(args)
        for norm in args.norm_kinds:
            plan = Namespace(**vars(args) | {"norm": norm})
            experiment.check(plan, data)
        folder = Path(args.output_dir or f"runs/tune-{experiment.name}")
        # Workers use the folder that their chief has opened.
        if not _is_worker():
            runs.open_folder(folder, _record(args), args.resume)
        if _is_finished(folder) or (_is_worker() and not _meets_chief(folder)):
            print(f"{folder} is finished.")
            return 0
        keras.utils.set_random_seed(args.seed)
        tuner = search(experiment, args, data, folder)
        return 0 if _is_worker() else report(tuner, folder)
    except InputError as error:
        parser.error(str(error))


def search(
    experiment: cli.Experiment, args: Namespace, data: Any, folder: Path
) -> Any:
    """Runs all trials, or goes on with them; returns the tuner."""
    import keras_tuner

    common = {
        "hypermodel": _hypermodel(experiment, args, data),
        "objective": keras_tuner.Objective("val_loss", "min"),
        "seed": args.seed,
        "directory": str(folder),
        "project_name": "search",
    }
    base = {
        "random": keras_tuner.RandomSearch,
        "bayesian": keras_tuner.BayesianOptimization,
        "hyperband": keras_tuner.Hyperband,
    }[args.tuner]
    kind = type("Tuner", (_WithoutTensorBoard, base), {})
    if args.tuner == "hyperband":
        tuner = kind(max_epochs=args.epochs, **common)
        tuner.oracle.max_trials = args.max_trials
    else:
        tuner = kind(max_trials=args.max_trials, **common)
    tuner.search(epochs=args.epochs, verbose=2)
    return tuner


class _WithoutTensorBoard:
    """KerasTuner 1.4.8 imports TensorBoard, which TensorFlow 2.21 lacks.

    It can go when `test_every_tuner` passes without, TensorBoard absent.
    """

    def _configure_tensorboard_dir(self, callbacks, trial, execution=0):
        pass


def _hypermodel(experiment: cli.Experiment, args: Namespace, data: Any) -> Any:
    import keras_tuner
    from keras_tuner import errors

    class Trial(keras_tuner.HyperModel):
        def build(self, hp):
            norm, gain = tuning.choose_kind(
                hp, args.norm_kinds, args.gains, "norm", _WITHOUT_GAIN
            )
            low, high = args.learning_rates
            chosen = {
                "norm": norm,
                "gain": gain,
                "units": hp.Choice("units", args.unit_choices),
                "learning_rate": hp.Float(
                    "learning_rate", low, high, sampling="log"
                ),
            }
            plan = Namespace(**vars(args) | chosen)
            # Not around the search: KerasTuner clears Keras' session, and
            # with it devices and precision, before every model.
            with training.environment(plan):
                self.task = experiment.make_task(plan, data)
            return self.task.model

        def fit(self, hp, model, *, initial_epoch=0, **kwargs):
            # The task is that of the model: `build` has just been called.
            updates = self.task.updates_per_pass
            with training.environment(args):
                history = model.fit(
                    self.task.batches(initial_epoch * updates),
                    steps_per_epoch=updates,
                    shuffle=False,
                    initial_epoch=initial_epoch,
                    validation_data=self.task.validation_data,
                    **kwargs,
                )
            if not all(map(math.isfinite, history.history["val_loss"])):
                raise errors.FailedTrialError(
                    "the loss left the finite numbers"
                )
            return history

    return Trial()


def report(tuner: Any, folder: Path) -> int:
    """Writes table, figure and best model; 1 if no trial had a result."""
    trials = sorted(
        tuner.oracle.trials.values(),
        key=lambda t: math.inf if t.score is None else t.score,
    )
    rows = []
    for trial in trials:
        values = trial.hyperparameters.values
        gain = values.get("norm_gain", "")
        rows.append(
            {
                "trial": int(trial.trial_id),
                "status": trial.status.lower(),
                "norm": values["norm"],
                "gain": "" if values["norm"] in _WITHOUT_GAIN else gain,
                "units": values["units"],
                "learning_rate": values["learning_rate"],
                "best_epoch": ""
                if trial.score is None
                else trial.best_step + 1,
                "val_loss": "" if trial.score is None else trial.score,
            }
        )
    files.write_csv(folder / "trials.csv", rows)
    print(tables.table([*rows[0]], [row.values() for row in rows]))
    scored = [row for row in rows if row["val_loss"] != ""]
    if not scored:
        print("tune.py: no trial had a finite loss", file=sys.stderr)
        return 1
    plotting.trials(scored, "held-out loss", folder / "trials.png")
    with warnings.catch_warnings():
        # Only weights are wanted, of what KerasTuner saved.
        warnings.filterwarnings("ignore", "Skipping variable loading for opt")
        (model,) = tuner.get_best_models(1)
    # The task of that model: it has just been built.
    tuner.hypermodel.task.write_vocabulary(folder)
    with files.replacing(folder / "model.keras") as partial:
        model.save(partial)
    files.write_json(folder / "metrics.json", scored[0])
    print(f"The table, the figure and the best model are in {folder}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(
        prog="tune.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("experiment", choices=EXPERIMENTS, metavar="EXPERIMENT")
    add("--tuner", choices=TUNERS, default="random")
    add("--max-trials", type=cli.positive_integer, default=10, metavar="N")
    add(
        "--norm-kinds",
        nargs="+",
        metavar="KIND",
        help="default: all that have the same loss",
    )
    add(
        "--unit-choices",
        nargs="+",
        type=cli.positive_integer,
        metavar="N",
        help="default: half, once and twice the preset's",
    )
    add(
        "--learning-rates",
        nargs=2,
        type=cli.positive_number,
        metavar=("LOW", "HIGH"),
        help="default: a tenth to ten times the preset's",
    )
    add(
        "--gains",
        nargs="+",
        type=cli.positive_number,
        default=[0.1, 1.0],
        metavar="X",
        help="initial gains (default: 0.1 1.0)",
    )
    return parser


def _complete(
    experiment: cli.Experiment, own: Namespace, given: Namespace
) -> Namespace:
    """The flags of a trial, but for what is searched."""
    for name in (*_ELSEWHERE, *_SEARCHED):
        if vars(given).get(name):
            raise InputError(
                f"--{name.replace('_', '-')} has no place in a search; see "
                "--help for what a search takes"
            )
    if len(given.seed) > 1:
        raise InputError(
            "--seed: expected one value, that of all trials, received "
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
                f"--norm-kinds: expected {kind} alone, since its loss is not "
                f"that of the others, received {' '.join(kinds)}"
            )
    (plan,) = cli.plans(experiment, given)
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
    return args


def _record(args: Namespace) -> dict[str, Any]:
    """What `args.json` says; only the search knows what it varies."""
    fixed = {k: v for k, v in vars(args).items() if k not in _SEARCHED}
    return runs.describe([Namespace(**fixed)], compare=False)


def _is_worker() -> bool:
    name = os.environ.get("KERASTUNER_TUNER_ID", "chief")
    return "KERASTUNER_ORACLE_IP" in os.environ and "chief" not in name


def _is_finished(folder: Path) -> bool:
    return (folder / "metrics.json").exists()


def _meets_chief(folder: Path) -> bool:
    """Waits for the chief; False if the search ended without this worker.

    KerasTuner itself would wait an hour for a chief that is gone.
    """
    address = (
        os.environ["KERASTUNER_ORACLE_IP"],
        int(os.environ["KERASTUNER_ORACLE_PORT"]),
    )
    while not _is_finished(folder):
        try:
            socket.create_connection(address, timeout=1).close()
            return True
        except OSError:
            time.sleep(0.5)
    return False


if __name__ == "__main__":
    sys.exit(main())
