"""The definition of a script: its flags, data, model and measures."""

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from common import flags
from common.errors import InputError
from common.measures import EPOCHS, VALIDATION, Panel

if TYPE_CHECKING:
    import keras

    from common import callbacks, training


def two_presets(**values: tuple[Any, Any]) -> dict[str, dict[str, Any]]:
    """The presets, from flags with a value for each; None leaves a flag."""
    return {
        name: {flag: v[i] for flag, v in values.items() if v[i] is not None}
        for i, name in enumerate(("quick", "paper"))
    }


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One script; a subclass loads, builds and measures.

    It overrides the methods that raise NotImplementedError, for which no
    answer fits all scripts.

    Frameworks take seconds to import. Methods therefore import them, after the
    flags are checked and --help is printed. Only the methods here, not their
    overrides, have types of arguments and results.

    Attributes:
        name: the script's name, followed by - and the task if there are
            several tasks; also the name of the default output folder.
        description: the first lines of --help.
        kinds: the values of --norm, in the order of tables and legends.
        presets: for "quick" and "paper", the defaults of the flags (with
            underscores).
        smoke: the flags that --smoke sets, unless given.
        panels: the curves to draw.
        columns: the table's headings and the keys of the metrics.
        default_kind: the kind without --norm.
        compared: the flags besides --norm and --seed that --compare varies
            unless given, with their values; the first makes the columns of
            the figure.
        without_gain: the kinds without a gain; --gain is None for them, and a
            comparison that varies it trains them once.
        batch_kinds: the kinds with batch statistics, which need batches of
            more than one example.
        tuned: the flag besides --learning-rate that --tune varies, with its
            values. If it is "gain", the kinds without a gain get
            equally many values of --scale.
        memory: from the flags of a run to the steps that its LSTMs or GRUs
            may have to remember. If given, there is --forget-steps, and
            --tune tries it for every kind.
        race: a quantity that falls. If given, the table has the updates that
            each kind takes to the value with which the first kind ends.
        progress: the x axis of the curves.
        criterion: a quantity that falls; `--tune` chooses by its least value
            on the held-out part.
        examples: the names of the training examples and of the evaluated
            examples in messages and titles.
        folds: the number of test parts that the seeds take in turn, if they
            do not all have the same one.
        embeddings: the initial distribution of word vectors, if there are
            any; runs with another distribution are another experiment.
        data_names: the data's name in titles, by the value of --data; the
            default is the name of the folder.
    """

    name: str
    description: str
    kinds: Sequence[str]
    presets: Mapping[str, Mapping[str, Any]]
    smoke: Mapping[str, Any]
    panels: Sequence[Panel]
    columns: Mapping[str, str]
    default_kind: str = "layer"
    compared: Mapping[str, Sequence[Any]] = dataclasses.field(
        default_factory=dict
    )
    without_gain: Sequence[str] = ()
    batch_kinds: Sequence[str] = ()
    tuned: tuple[str, Sequence[float]] = ("gain", (0.1, 0.3, 1.0))
    memory: Callable[[Namespace], int] | None = None
    race: Panel | None = None
    progress: Panel = EPOCHS
    criterion: Panel = VALIDATION
    examples: tuple[str, str] = ("training images", "test images")
    folds: int | None = None
    embeddings: str | None = None
    data_names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    # The number of examples in a batch of an evaluation.
    evaluation_batch: ClassVar[int] = 128
    # The metric on the training examples, and its column in the history.
    training_metric: ClassVar[tuple[str, str]] = ("train_nll", "loss")
    # The logs to print, at most three, if there is no terminal.
    shown: ClassVar[Sequence[str]] = ("loss", "val_loss")
    # Whether evaluations recompute the averaged statistics of `batch_kinds`.
    fresh_statistics: ClassVar[bool] = False

    @property
    def script(self) -> str:
        """The script's name."""
        return self.name.partition("-")[0]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the experiment's own flags, with default None."""

    def check_flags(self, args: Namespace) -> None:
        """Refuses flags that do not go together with any data."""
        flags.check_batch_statistics(args, self.batch_kinds)

    def for_flags(self, args: Namespace) -> "Experiment":
        """The experiment with the panels and columns of these flags."""
        return self

    def load_data(self, args: Namespace) -> Any:
        """Loads the data.

        `args.data` is "embedded", "tfds" or a path that exists. The data's
        `held_out()` returns the data of --tune, whose test part is taken from
        the training part.

        Raises:
            InputError: if the data cannot be used.
        """
        raise NotImplementedError

    def sizes(self, data: Any) -> tuple[int, int]:
        """The number of training examples and of held-out ones."""
        raise NotImplementedError

    def check(self, args: Namespace, data: Any) -> None:
        """Refuses flags that the data do not allow."""
        from common import devices, training

        examples, tested = self.sizes(data)
        if args.batch_size > examples:
            raise InputError(
                f"--batch-size {args.batch_size} is more than the {examples} "
                f"{self.examples[0]}"
            )
        training.check_evaluate_every(args, examples // args.batch_size)
        devices.held_out(args, tested, self.evaluation_batch)

    def make_task(self, args: Namespace, data: Any) -> "training.Task":
        """Compiles the model of a run, in which `gain` is a flag.

        Raises:
            InputError: for flags that the model does not allow.
        """
        raise NotImplementedError

    def compile(
        self,
        args: Namespace,
        data: Any,
        model: "keras.Model",
        train: Callable[[Any], Sequence[Any]],
        test: Callable[[Any], Sequence[Any]],
        given: Callable[..., Any] | None = None,
        batches: Callable[..., Any] | None = None,
        xla: bool = True,
        **options: Any,
    ) -> "training.Task":
        """Compiles a model that learns from rows of arrays, for `make_task`.

        Args:
            train: from data to the training arrays.
            test: from data to the evaluation arrays.
            given: from a batch of each array to an element for `model.fit`,
                unless the arrays are inputs and targets.
            batches: from data, batch size, seed and update to the following
                batches, unless every pass has the rows in a new order.
            xla: whether `training.speed` makes the model faster.
            **options: arguments of `model.compile`.
        """
        from common import callbacks, devices, training
        from common.datasets import streams

        learnt = training.learnt(args, data)
        arrays = train(learnt)
        updates_per_pass = len(arrays[0]) // args.batch_size
        if xla:
            updates = args.evaluate_every or updates_per_pass
            options |= training.speed(updates)
        model.compile(**options)

        def following(update):
            place = (args.batch_size, args.seed, update)
            if batches:
                return batches(learnt, *place)
            stream = streams.shuffled(arrays, *place)
            return stream.map(given) if given else stream

        def evaluated(part):
            whole = test(part)
            count, batch = devices.held_out(
                args, len(whole[0]), self.evaluation_batch
            )
            stream = streams.in_order([a[:count] for a in whole], batch)
            return stream.map(given) if given else stream

        fresh = []
        if self.fresh_statistics and args.norm in self.batch_kinds:
            fresh.append(
                callbacks.FreshStatistics(
                    following(0), args.batch_size, updates_per_pass
                )
            )
        return training.Task(
            model,
            following,
            updates_per_pass,
            evaluated(data),
            evaluated(learnt) if args.tune else None,
            extra_callbacks=fresh,
            shown=self.shown,
        )

    def watch(self, args: Namespace, data: Any) -> "list[Any]":
        """The callbacks of a run that a search does not need."""
        return []

    def measure_row(self, row: Mapping[str, float]) -> dict[str, float]:
        """The held-out metrics of a row of the history."""
        raise NotImplementedError

    def finish(
        self,
        args: Namespace,
        data: Any,
        task: "training.Task",
        history: "callbacks.History",
        folder: Path,
    ) -> dict[str, float]:
        """Writes samples of a trained model; returns further metrics."""
        return {}

    def train(
        self, args: Namespace, data: Any, folder: Path
    ) -> tuple[dict[str, float], "callbacks.History"]:
        """Trains and evaluates one kind, in an empty or resumed folder."""
        from common import training

        task = self.make_task(args, data)
        watching = self.watch(args, data)
        history = task.fit(folder, args, extra_callbacks=watching)
        last, end = history.rows[-1], training.end(history.rows)
        metric, column = self.training_metric
        metrics = {
            metric: last[column],
            **self.measure_row(end),
            "end_updates": end["updates"],
            **self.finish(args, data, task, history, folder),
            "epochs": last["epoch"],
            "updates": last["updates"],
        }
        return metrics, history

    def untrained(self, args: Namespace, data: Any) -> dict[str, float]:
        """The metrics of an untrained model."""
        return self.measure_row(self.make_task(args, data).evaluate(args))

    def floors(
        self, args: Namespace, data: Any
    ) -> Mapping[str, Mapping[str, float]]:
        """Metrics without training, by name: chance, a baseline."""
        return {}

    @property
    def embedded(self) -> str:
        """The data of `--data embedded`, for --help."""
        return self.data_names["embedded"]

    def data_name(self, args: Namespace) -> str:
        """The name of the data in titles."""
        return self.data_names.get(args.data, Path(args.data).name)

    def details(self, args: Namespace, data: Any) -> list[str]:
        """Facts about the data in titles, besides name and sizes."""
        return []

    def describe(self, args: Namespace, data: Any) -> str:
        """The data in a few words, for titles."""
        from common import training

        count, _ = self.sizes(training.learnt(args, data))
        _, tested = self.sizes(data)
        sizes = f"{count:,} training and {tested:,} {self.examples[1]}"
        parts = (self.data_name(args), *self.details(args, data), sizes)
        return ", ".join(parts)
