"""The search of `tune.py`, and its results."""

import contextlib
import math
import os
import socket
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
from common import ending, files, plotting, single, tables, training
from common.callbacks import StopOnCtrlC
from common.experiment import Experiment

from keras_ln import tuning


def run(experiment: Experiment, args: Namespace, folder: Path) -> int:
    """Searches, as chief, worker or single process; returns the exit code."""
    training.check_environment(args)
    data = experiment.load_data(args)
    for norm in args.norm_kinds:
        experiment.check(Namespace(**vars(args) | {"norm": norm}), data)
    # Workers use the folder that their chief has opened.
    with contextlib.nullcontext() if _is_worker() else files.alone_in(folder):
        if not _is_worker():
            record = single.describe([args], False, data)
            single.open_folder(folder, record, args.resume)
        if _is_finished(folder) or (_is_worker() and not _meets_chief(folder)):
            print(f"{folder} is finished.")
            return 0
        keras.utils.set_random_seed(args.seed)
        with ending.resumable(folder):
            tuner = search(experiment, args, data, folder)
            if _is_worker():
                return 0
            return report(tuner, folder, experiment.without_gain)


def search(
    experiment: Experiment, args: Namespace, data: Any, folder: Path
) -> Any:
    """Runs or continues all trials; returns the tuner."""
    import keras_tuner

    common = {
        "hypermodel": _hypermodel(experiment, args, data),
        "objective": keras_tuner.Objective("val_loss", "min"),
        "seed": args.seed,
        "directory": str(folder),
        "project_name": "search",
        # Trials may diverge one after the other.
        "max_consecutive_failed_trials": args.max_trials + 1,
    }
    kind = {
        "random": keras_tuner.RandomSearch,
        "bayesian": keras_tuner.BayesianOptimization,
        "hyperband": keras_tuner.Hyperband,
    }[args.tuner]
    if args.tuner == "hyperband":
        tuner = kind(max_epochs=args.epochs, **common)
        tuner.oracle.max_trials = args.max_trials
    else:
        tuner = kind(max_trials=args.max_trials, **common)
    # KerasTuner finds a trial's weights by the trial's name, which it has read.
    for name in () if _is_worker() else tuner.oracle.trials:
        files.inside(folder / "search", f"trial_{name}", folder / "search")
    with warnings.catch_warnings():
        # The score of a trial that diverged.
        warnings.filterwarnings("ignore", "All-NaN")
        tuner.search(epochs=args.epochs, verbose=1)
    return tuner


def _hypermodel(experiment: Experiment, args: Namespace, data: Any) -> Any:
    import keras_tuner

    class Trial(keras_tuner.HyperModel):
        def build(self, hp):
            norm, gain = tuning.choose_kind(
                hp,
                args.norm_kinds,
                args.gains,
                "norm",
                experiment.without_gain,
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
            # Not around the search: before every model, KerasTuner clears
            # Keras' session with its devices and precision.
            with training.environment(plan):
                self.task = experiment.make_task(plan, data)
            return self.task.model

        def fit(self, hp, model, *, initial_epoch=0, callbacks, **kwargs):
            # `build` has just made the task with the model.
            updates = self.task.updates_per_pass
            verbose, lines = training.progress(shown=self.task.shown)
            with training.environment(args), _fatal_output():
                history = model.fit(
                    self.task.batches(initial_epoch * updates),
                    steps_per_epoch=updates,
                    shuffle=False,
                    initial_epoch=initial_epoch,
                    validation_data=self.task.validation_data,
                    callbacks=[
                        StopOnCtrlC(),
                        *(*self.task.extra_callbacks, *callbacks, *lines),
                    ],
                    **kwargs | {"verbose": verbose},
                )
            if not all(map(math.isfinite, history.history["val_loss"])):
                return math.nan  # KerasTuner counts the trial as failed.
            return history

    return Trial()


def report(tuner: Any, folder: Path, without_gain: Sequence[str]) -> int:
    """Writes table, figure and best model; 1 if no trial had a result."""
    trials = sorted(
        tuner.oracle.trials.values(),
        key=lambda t: t.score if t.status == "COMPLETED" else math.inf,
    )
    rows = []
    for trial in trials:
        values = trial.hyperparameters.values
        gain = values.get("norm_gain", "")
        finite = trial.status == "COMPLETED"
        rows.append(
            {
                "trial": int(trial.trial_id),
                "status": trial.status.lower(),
                "norm": values["norm"],
                "gain": "" if values["norm"] in without_gain else gain,
                "units": values["units"],
                "learning_rate": values["learning_rate"],
                "best_epoch": _best_epoch(trial) if finite else "",
                "val_loss": trial.score if finite else "",
            }
        )
    files.write_csv(folder / "trials.csv", rows)
    print(tables.of_rows(rows))
    scored = [row for row in rows if row["val_loss"] != ""]
    if not scored:
        print("tune.py: no trial had a finite loss", file=sys.stderr)
        return 1
    plotting.trials(scored, "held-out loss", folder / "trials.png")
    with warnings.catch_warnings():
        # Only the weights are needed, not the optimizer's state.
        warnings.filterwarnings("ignore", "Skipping variable loading for opt")
        (model,) = tuner.get_best_models(1)
    # `get_best_models` has just built that model's task.
    tuner.hypermodel.task.write_vocabulary(folder)
    with files.replacing(folder / "model.keras") as partial:
        model.save(partial)
    files.write_json(folder / "metrics.json", scored[0])
    print(f"The table, the figure and the best model are in {folder}.")
    if len(trials) < tuner.oracle.max_trials:
        print(
            f"Hyperband tried {len(trials)} models of at most "
            f"{tuner.oracle.max_trials}: it tries more with more --epochs."
        )
    return 0


def _best_epoch(trial: Any) -> int:
    """Hyperband goes on with some trials in new ones."""
    earlier = trial.hyperparameters.values.get("tuner/initial_epoch", 0)
    return earlier + trial.best_step + 1


@contextlib.contextmanager
def _fatal_output() -> Iterator[None]:
    """Ends the search at an error that KerasTuner would ignore."""
    from keras_tuner import errors

    try:
        yield
    except OSError as error:
        fatal = type("Fatal", (errors.FatalError, type(error)), {})
        raise fatal(*error.args) from error


def _is_worker() -> bool:
    name = os.environ.get("KERASTUNER_TUNER_ID", "chief")
    return "KERASTUNER_ORACLE_IP" in os.environ and "chief" not in name


def _is_finished(folder: Path) -> bool:
    return (folder / "metrics.json").exists()


def _meets_chief(folder: Path) -> bool:
    """Waits for the chief; False if the search ended without this worker.

    KerasTuner would wait an hour for a chief that has ended.
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
