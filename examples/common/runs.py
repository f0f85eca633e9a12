"""The runs of a script: what each of them gives to `model.fit`."""

import contextlib
import itertools
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from common import backup, callbacks, devices, files, flags
from common.errors import InputError, NonFiniteLossError

BACKUP = "backup.npz"
# They decide how to run, and do not change the result.
_NOT_RECORDED = (
    *("compare", "output_dir", "resume", "tensorboard"),
    *("script", "folder", "varied"),
)


def of(
    args: Namespace, examples: int = 0, updates: int | None = None
) -> Iterator["Run"]:
    """The runs that a script still has to train, one after the other.

    Runs that have ended are left out; those that were killed go on.

    Args:
        args: the flags, of `flags.parse`.
        examples: the number of training examples.
        updates: the updates of a pass over them, if batches are made in a way
            of the script's own.
    """
    planned = flags.plans(args)
    passes = [updates or examples // plan.batch_size for plan in planned]
    for plan, number in zip(planned, passes, strict=True):
        if not number:
            raise InputError(
                f"--batch-size {plan.batch_size} is more than the {examples} "
                "training examples"
            )
        every, total = vars(plan).get("evaluate_every"), plan.epochs * number
        if every and total % every:
            raise InputError(
                f"--evaluate-every {every} does not divide the {total} updates "
                f"of this run; {nearest_divisor(total, every)} does"
            )
    with files.alone_in(args.folder):
        open_folder(args.folder, _record(args, args.varied), args.resume)
    devices.warn_of_load()
    for i, (plan, number) in enumerate(zip(planned, passes, strict=True)):
        folder = folder_of(args, plan)
        if args.compare:
            print(f"[{i + 1}/{len(planned)}] {folder.name}")
        if (folder / "metrics.json").exists():
            metrics_of(folder)
            print(f"{folder} is finished.")
            continue
        yield Run(args, plan, folder, number)


def folder_of(args: Namespace, plan: Namespace) -> Path:
    """The folder of a run."""
    if not args.compare:
        return args.folder
    values = {name: vars(plan)[name] for name in args.varied if name != "norm"}
    parts = [f"{k}-{v}" for k, v in values.items() if v is not None]
    return args.folder / "-".join([plan.norm, *parts]).replace("_", "-")


def metrics_of(folder: Path) -> dict[str, float] | None:
    """The results of a run; None if it has not ended well."""
    path = folder / "metrics.json"
    if not path.exists():
        return None
    found, rows = files.read_json(path), history_of(folder)
    if not isinstance(found, dict) or "updates" not in found:
        raise InputError(f"{path} is damaged")
    if not rows or rows[-1].get("updates") != found["updates"]:
        raise InputError(f"{folder / 'history.csv'} is damaged")
    return found


def history_of(folder: Path) -> list[dict[str, float]]:
    """The rows of a run's history, a dictionary per evaluation."""
    path = folder / "history.csv"
    return files.read_csv(path) if path.exists() else []


class Run:
    """One training.

    Its flags are attributes too, such as `norm`, `seed` and `batch_size`.

    Attributes:
        folder: the folder of its files.
        steps: the updates of a Keras epoch: a pass over the data or, if given,
            --evaluate-every.
        epochs: the number of Keras epochs.
        first: the number of the first update that is left.
        verbose: for `model.fit`: a bar on a terminal, else a line per epoch.
    """

    def __init__(
        self, args: Namespace, plan: Namespace, folder: Path, updates: int
    ):
        vars(self).update(vars(plan))
        self.folder, self.whole = folder, args.folder
        self.plan, self.updates = plan, updates
        self.steps = getattr(plan, "evaluate_every", None) or updates
        self.epochs = plan.epochs * updates // self.steps
        self.first = 0
        self.verbose = 1 if sys.stdout.isatty() else 2
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        """Seeds everything; follows --mixed-precision and --distribute."""
        enter = self._open.enter_context
        enter(files.alone_in(self.whole))
        if self.folder != self.whole:
            open_folder(self.folder, _record(self.plan, {}), resume=True)
        self.first = backup.Backup(self.folder / BACKUP).epoch * self.steps
        if self.first:
            print(f"Continuing after update {self.first}.")
        policy = keras.mixed_precision.dtype_policy()
        set_policy = keras.mixed_precision.set_dtype_policy
        self._open.callback(keras.backend.clear_session)
        self._open.callback(set_policy, policy)
        keras.utils.set_random_seed(self.seed)
        if self.mixed_precision:
            set_policy(f"mixed_{self.mixed_precision}")
        enter(devices.distribution(self.plan))
        return self

    def __exit__(self, kind, error, trace) -> bool:
        self._open.close()
        if isinstance(error, (KeyboardInterrupt, OSError)):
            # Like `add_note`, which Python 3.10 lacks.
            note = f"--resume continues the run in {self.whole}"
            error.__notes__ = [*getattr(error, "__notes__", ()), note]
        if isinstance(error, NonFiniteLossError):
            print(f"{self.script}.py: {self.folder}: {error}", file=sys.stderr)
            return True
        return False

    def batches(self, *arrays: Any) -> Any:
        """Endless batches of inputs, targets and weights, as for `model.fit`.

        They are a function of seed and update, so that a run that was killed
        goes on with the batches that it would have seen. Every pass has a new
        order and leaves out the examples that are no whole batch.
        """
        count = len(keras.tree.flatten(arrays)[0])
        numbers = shuffled(count, self.batch_size, self.seed, self.first)
        return feed(
            keras.tree.map_structure(lambda x, own=rows: x[own], arrays)
            for rows in numbers
        )

    def callbacks(
        self,
        model: keras.Model,
        *own: keras.callbacks.Callback,
        monitor: str | None = None,
    ) -> list[keras.callbacks.Callback]:
        """The callbacks that write the run's files and let it go on.

        Args:
            model: the compiled model.
            *own: the script's callbacks; their numbers are part of the backup,
                and what they add to the logs is part of the history.
            monitor: if given, the log whose greatest value decides which model
                is kept; else the last model is kept.
        """
        if not model.optimizer.built:
            # In the first update TensorFlow would trace that update twice.
            model.optimizer.build(model.trainable_variables)
        self.history = callbacks.History(
            self.folder / "history.csv", self.steps, self.updates
        )
        checkpoint = callbacks.Checkpoint(
            str(self.folder / "model.keras"),
            monitor=monitor or "val_loss",
            save_best_only=monitor is not None,
            mode="max",
        )
        saved = [*own, checkpoint, self.history]
        board = keras.callbacks.TensorBoard
        return [
            callbacks.StopOnCtrlC(),
            callbacks.StopOnNonFinite(self.steps),
            *([board(str(self.folder / "tensorboard"))] * self.tensorboard),
            *saved,
            backup.Backup(self.folder / BACKUP, saved),
        ]

    def fresh_statistics(self, inputs: Any) -> list[keras.callbacks.Callback]:
        """The callback that kinds with batch statistics need, or none."""
        fresh = callbacks.FreshStatistics(inputs, self.batch_size)
        return [fresh] if flags.uses_batches(self.norm) else []

    @property
    def speed(self) -> dict[str, Any]:
        """The arguments of `compile` that cut the overhead of small steps.

        On TensorFlow a model of a few dense layers gains from XLA, which Keras
        does not use on a CPU, and from several updates per call. On JAX Keras
        would unroll these, torch supports a single one, and TensorFlow 2.21
        fails with several on several devices.
        """
        if keras.backend.backend() != "tensorflow" or self.distribute != "none":
            return {}
        return {
            "jit_compile": True,
            "steps_per_execution": nearest_divisor(self.steps, 50),
        }

    @property
    def last(self) -> dict[str, float]:
        """The last row of the history."""
        return self.history.rows[-1]

    def write_words(self, words: Sequence[str]) -> None:
        """Writes `vocabulary.txt`, the words of the model's numbers."""
        text = "".join(f"{word}\n" for word in words)
        files.write_text(self.folder / "vocabulary.txt", text)

    def finish(self, metrics: dict[str, float]) -> None:
        """Writes `environment.json`, then `metrics.json`: the run has ended."""
        facts = devices.facts(self.history.seconds)
        files.write_json(self.folder / "environment.json", facts)
        found = {name: float(value) for name, value in metrics.items()}
        found |= {"epochs": self.last["epoch"], "updates": self.last["updates"]}
        files.write_json(self.folder / "metrics.json", found)
        (self.folder / BACKUP).unlink(missing_ok=True)


def feed(batches: Iterator[Any], any_length: bool = False) -> Any:
    """Batches as `model.fit` takes them, all of one size.

    TensorFlow gets their shapes, without which it would trace an update twice;
    with `any_length` only the number of their dimensions.
    """
    if keras.backend.backend() != "tensorflow":
        return batches
    import tensorflow as tf

    def spec(x):
        shape = x.ndim * [None] if any_length else x.shape
        return tf.TensorSpec(shape, x.dtype)

    first = next(batches)
    whole = itertools.chain([first], batches)
    signature = keras.tree.map_structure(spec, first)
    dataset = tf.data.Dataset.from_generator(
        lambda: whole, output_signature=signature
    )
    return dataset.prefetch(tf.data.AUTOTUNE)


def shuffled(
    count: int, size: int, seed: int, first: int = 0
) -> Iterator[np.ndarray]:
    """Endless numbers (size,) of `count` examples, from batch `first` on."""
    per_pass = count // size
    number = first
    while True:
        order = np.random.default_rng((seed, number // per_pass))
        rows = order.permutation(count)[: per_pass * size].reshape(-1, size)
        yield from rows[number % per_pass :]
        number += per_pass - number % per_pass


def nearest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    return max(d for d in range(1, min(limit, number) + 1) if number % d == 0)


def _record(
    args: Namespace, varied: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The content of `args.json`, with lists for flags of which runs differ."""
    compare = args.compare and bool(varied)
    record = {"backend": keras.backend.backend(), "compare": compare}
    given = {k: v for k, v in vars(args).items() if k not in _NOT_RECORDED}
    for name, values in varied.items():
        given[name] = values if len(values) > 1 else values[0]
    # Lists for tuples, as read from the file.
    return record | json.loads(json.dumps(given))


def open_folder(folder: Path, record: dict[str, Any], resume: bool) -> None:
    """Makes a folder ready for the run of `record`, or refuses it."""
    path = folder / "args.json"
    if not path.exists():
        if folder.exists() and not all(map(files.is_partial, folder.iterdir())):
            raise InputError(
                f"{folder} holds other files and no run; choose another "
                "--output-dir"
            )
        files.make_folder(folder)
        files.write_json(path, record)
        return
    found = files.read_json(path)
    if not isinstance(found, dict):
        raise InputError(f"{path} is damaged")
    if found.get("tune"):
        raise InputError(
            f"{folder} was made with --tune, which this version no longer "
            "has; choose another --output-dir"
        )
    before, now = ([*np.ravel(one.get("seed"))] for one in (found, record))
    # A comparison may get more seeds.
    more = record.get("compare") and now[: len(before)] == before
    known = found | {"seed": record["seed"]} if more else found
    differing = [
        f"{name} {found.get(name)} there, {record.get(name)} here"
        for name in {**known, **record}
        if known.get(name) != record.get(name)
    ]
    if differing:
        raise InputError(
            f"{folder} holds another run ({'; '.join(differing)}); choose "
            "another --output-dir"
        )
    if not resume:
        ended = ("metrics.json", "comparison.csv")
        state, aim = "begun", "continue"
        if any((folder / name).exists() for name in ended):
            state, aim = "already finished", "show"
        raise InputError(
            f"{folder} holds this run, {state}; add --resume to {aim} it or "
            "choose another --output-dir"
        )
    files.remove_partial(folder)
    if more:
        files.write_json(path, record)
