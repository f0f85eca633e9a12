"""One way to train: `model.fit` with callbacks that survive a kill."""

import contextlib
import dataclasses
import importlib.util
import math
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from common import backup, callbacks, devices, files, grids
from common.errors import InputError

BACKENDS = ("tensorflow", "jax", "torch")
BACKUP = "backup.npz"
# The prefix of measures on the part that chooses.
CHOICE = "choice_"


def end(rows: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The evaluation that the validation part chose; without one, the last."""
    if f"{CHOICE}loss" not in rows[0]:
        return rows[-1]
    return min(rows, key=lambda row: row[f"{CHOICE}loss"])


def learnt(args: Namespace, data: Any) -> Any:
    """The training data of a run, of which --tune holds a part out."""
    return data.held_out() if args.tune else data


@dataclasses.dataclass(frozen=True)
class Task:
    """A compiled model with its training data.

    Attributes:
        model: a compiled and built model.
        batches: from the number of updates already done to an endless data
            set of the following batches.
        updates_per_pass: the number of batches of one pass.
        validation_data: as in `model.fit`.
        choosing_data: another part, whose loss chooses the evaluation to
            report.
        vocabulary: the words, if the inputs are numbers of words.
        extra_callbacks: callbacks that its training needs, without a state.
        shown: the logs to print; all if empty.
    """

    model: keras.Model
    batches: Callable[[int], tf.data.Dataset]
    updates_per_pass: int
    validation_data: Any
    choosing_data: Any = None
    vocabulary: Sequence[str] | None = None
    extra_callbacks: Sequence[keras.callbacks.Callback] = ()
    shown: Sequence[str] = ()

    def fit(
        self,
        folder: Path,
        args: Namespace,
        extra_callbacks: Sequence[keras.callbacks.Callback] = (),
        monitor: str | None = None,
        mode: str = "auto",
    ) -> callbacks.History:
        """Trains for `args.epochs` passes over the data.

        It continues from a backup in `folder`. After every Keras epoch the
        model is evaluated, saved and backed up. A Keras epoch is one pass or,
        if given, `args.evaluate_every` updates.

        Args:
            folder: the folder for `history.csv`, `model.keras` and the backup.
            args: the flags.
            extra_callbacks: callbacks to run before the callbacks that save.
            monitor: if given, the log whose best value decides which model
                is kept; else the last model is kept.
            mode: "min" or "max", for `monitor`.

        Returns:
            The callback that wrote `history.csv`, with its `rows`.
        """
        model = self.model
        scale_matrices(model, args.scale)
        self.write_vocabulary(folder)
        updates = args.evaluate_every or self.updates_per_pass
        epochs = args.epochs * self.updates_per_pass // updates
        if args.decay == "cosine":
            # It depends on the optimizer's count of updates, part of a backup.
            model.optimizer.learning_rate = (
                keras.optimizers.schedules.CosineDecay(
                    args.learning_rate, epochs * updates
                )
            )
        if not model.optimizer.built:
            # In the first update TensorFlow would trace that update twice.
            model.optimizer.build(model.trainable_variables)
        history = callbacks.History(
            folder / "history.csv", updates, self.updates_per_pass
        )
        checkpoint = callbacks.Checkpoint(
            str(folder / "model.keras"),
            monitor=monitor or "val_loss",
            save_best_only=monitor is not None,
            mode=mode,
        )
        saved = [*self.extra_callbacks]
        if self.choosing_data is not None:
            saved.append(callbacks.Measured(self._choose, CHOICE))
        saved += [*extra_callbacks, checkpoint, history]
        saver = backup.Backup(folder / BACKUP, saved)
        board = (
            [keras.callbacks.TensorBoard(str(folder / "tensorboard"))]
            if args.tensorboard
            else []
        )
        if saver.epoch:
            print(f"Continuing after update {saver.epoch * updates}.")
        unit = "evaluation" if args.evaluate_every else "epoch"
        verbose, lines = progress(unit, self.shown)
        model.fit(
            self.batches(saver.epoch * updates),
            steps_per_epoch=updates,
            shuffle=False,
            initial_epoch=epochs if saver.stopped else saver.epoch,
            epochs=epochs,
            validation_data=self.validation_data,
            callbacks=[
                callbacks.StopOnCtrlC(),
                callbacks.StopOnNonFinite(updates),
                *board,
                *saved,
                saver,
                # Last, because a line into a closed pipe ends the run.
                *lines,
            ],
            verbose=verbose,
        )
        return history

    def _choose(self, model: keras.Model) -> dict[str, float]:
        return model.evaluate(self.choosing_data, verbose=0, return_dict=True)

    def evaluate(self, args: Namespace) -> dict[str, float]:
        """The held-out metrics of the untrained model, named as in `fit`."""
        scale_matrices(self.model, args.scale)
        self.model.jit_compile = False  # XLA does not pay off for one pass.
        found = self.model.evaluate(
            self.validation_data, verbose=0, return_dict=True
        )
        return {f"val_{name}": float(value) for name, value in found.items()}

    def write_vocabulary(self, folder: Path) -> None:
        """Writes `vocabulary.txt`, the words of a saved model's numbers."""
        if self.vocabulary is not None:
            files.write_text(
                folder / "vocabulary.txt",
                "".join(f"{word}\n" for word in self.vocabulary),
            )


# The kernels; with weight normalisation their scale is in the gains.
_SCALED = ("kernel", "kernel_g")


def scale_matrices(model: keras.Model, factor: float | None) -> None:
    """Multiplies a model's initial matrices by --scale, if it is given."""
    for variable in model.trainable_variables:
        if factor is not None and variable.name in _SCALED:
            variable.assign(factor * variable)


def check_environment(args: Namespace) -> None:
    """Refuses flags that the Keras backend or the machine cannot follow."""
    if args.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs it: pip install tensorboard")
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise InputError(
            f"Keras does not train on the backend {backend}: set KERAS_BACKEND "
            f"to one of {', '.join(BACKENDS)}"
        )
    devices.check(args)


@contextlib.contextmanager
def environment(args: Namespace) -> Iterator[None]:
    """Seeds everything and applies --mixed-precision and --distribute.

    Models have to be built and trained inside.
    """
    policy = keras.mixed_precision.dtype_policy()
    keras.utils.set_random_seed(args.seed)
    if args.mixed_precision:
        keras.mixed_precision.set_dtype_policy(f"mixed_{args.mixed_precision}")
    try:
        with devices.distribution(args):
            yield
    finally:
        keras.mixed_precision.set_dtype_policy(policy)


def speed(updates: int, limit: int = 50) -> dict[str, Any]:
    """The arguments of `compile` that cut the overhead of small steps.

    On TensorFlow a model of a few dense layers gains from XLA, which Keras does
    not use on a CPU, and from running several steps per call. On JAX Keras
    would unroll these steps, torch supports a single step, and TensorFlow 2.21
    fails with several steps on several devices.
    """
    if keras.backend.backend() != "tensorflow" or tf.distribute.has_strategy():
        return {}
    return {
        "jit_compile": True,
        "steps_per_execution": nearest_divisor(updates, limit),
    }


def nearest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    return max(d for d in range(1, min(limit, number) + 1) if number % d == 0)


def progress(
    unit: str = "epoch", shown: Sequence[str] = ()
) -> tuple[int, list[keras.callbacks.Callback]]:
    """The display of `model.fit`: `verbose` and callbacks.

    A terminal, which can redraw, gets Keras' progress bar; otherwise there is
    a line per Keras epoch, by `callbacks.EvaluationLine`.
    """
    if sys.stdout.isatty():
        return 1, []
    return 0, [callbacks.EvaluationLine(unit, shown)]


def check_evaluate_every(args: Namespace, updates_per_pass: int) -> None:
    """Refuses an --evaluate-every that does not fit into the passes."""
    every, runs = args.evaluate_every, {"this run": args.epochs}
    if args.tune:
        runs["a first run of --tune"] = grids.epochs(args)
    for name, epochs in runs.items():
        if every and epochs * updates_per_pass % every:
            common = math.gcd(*runs.values()) * updates_per_pass
            raise InputError(
                f"--evaluate-every {every} does not divide the "
                f"{epochs * updates_per_pass} updates of {name}; "
                f"{nearest_divisor(common, every)} does"
            )


def finish(
    folder: Path, metrics: dict[str, float], history: callbacks.History
) -> None:
    """Writes `environment.json`, then `metrics.json`: the run is finished."""
    facts = devices.facts(history.seconds)
    files.write_json(folder / "environment.json", facts)
    files.write_json(folder / "metrics.json", metrics)
    (folder / BACKUP).unlink(missing_ok=True)
