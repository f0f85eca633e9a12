"""Data, training and samples of `handwriting_generation.py`."""

from argparse import Namespace
from pathlib import Path

import handwriting_generation_mixture
import handwriting_generation_model
import keras
import numpy as np
from common import callbacks, devices, plotting, runs, training
from common.datasets import streams, strokes
from common.errors import InputError
from scipy import stats

EVALUATION_BATCH = 64


def load_data(args: Namespace) -> strokes.Handwriting:
    """Loads lines of text, a few of them for --smoke."""
    data = strokes.load(args)
    if args.smoke:
        return strokes.Handwriting(data.train.first(64), data.test.first(64))
    return data


def check(args: Namespace, data: strokes.Handwriting) -> None:
    """Refuses batch sizes that the data do not allow."""
    examples = len(data.train.points)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training lines"
        )
    training.check_evaluate_every(args, examples // args.batch_size)
    devices.held_out(args, len(data.test.points), EVALUATION_BATCH)


def make_task(args: Namespace, data: strokes.Handwriting) -> training.Task:
    """Compiles the model, whose loss is in nats per point."""
    learnt = training.learnt(args, data)
    written = learnt.train.valid.sum()
    pace = float(np.count_nonzero(learnt.train.symbols) / written)
    model = handwriting_generation_model.build_model(
        args.norm,
        args.units,
        data.train.points.shape[1],
        data.train.symbols.shape[1],
        pace=pace,
        gain=args.gain,
    )
    updates_per_pass = len(learnt.train.points) // args.batch_size
    model.compile(
        keras.optimizers.Adam(args.learning_rate, global_clipnorm=10.0),
        handwriting_generation_mixture.MixtureNLL(
            reduction="mean_with_sample_weight"
        ),
        weighted_metrics=[
            keras.metrics.MeanMetricWrapper(
                handwriting_generation_mixture.mixture_nll, name="nll"
            )
        ],
        **training.speed(args.evaluate_every or updates_per_pass),
    )

    def shifted(points, valid, symbols):
        # A point is to be foreseen from those before it.
        before = np.pad(points[:, :-1], ((0, 0), (1, 0), (0, 0)))
        return before, symbols, points, valid

    def as_fit_wants(before, symbols, points, valid):
        return (before, symbols), points, valid

    def evaluated(part):
        tested, batch = devices.held_out(
            args, len(part.test.points), EVALUATION_BATCH
        )
        points = shifted(*part.test.first(tested))
        return streams.in_order(points, batch).map(as_fit_wants)

    train = shifted(*learnt.train)
    return training.Task(
        model,
        lambda update: streams.shuffled(
            train, args.batch_size, args.seed, update
        ).map(as_fit_wants),
        updates_per_pass,
        evaluated(data),
        evaluated(learnt) if args.tune else None,
    )


def train(
    args: Namespace, data: strokes.Handwriting, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind; writes samples.png."""
    task = make_task(args, data)
    print(f"{task.model.count_params():,} weights")
    history = task.fit(folder, args)
    symbols = strokes.encode_all(args.text)
    ways = handwriting_generation_model.write(
        task.model,
        symbols,
        length=2 * data.train.points.shape[1],
        bias=args.bias,
        random=np.random.default_rng(args.seed),
    )
    plotting.handwriting(ways, args.text, folder / "samples.png")
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {
        "train_nll": last["nll"],
        "test_nll": end["val_nll"],
        "end_updates": end["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def describe(args: Namespace, data: strokes.Handwriting) -> str:
    """What the lines are, and how many."""
    names = {"embedded": "stroke fonts", "tfds": "IAM-OnDB"}
    name = names.get(args.data, Path(args.data).name)
    count = len(training.learnt(args, data).train.points)
    return (
        f"{name}, {count:,} training and {len(data.test.points):,} test lines"
    )


def floors(
    _: Namespace, data: strokes.Handwriting
) -> dict[str, dict[str, float]]:
    """The density that is the same for all points, fitted to them."""
    train, test = (
        part.points[part.valid > 0].astype(np.float64)
        for part in (data.train, data.test)
    )
    normal = stats.multivariate_normal(
        train[:, :2].mean(axis=0), np.cov(train[:, :2].T)
    )
    end = stats.bernoulli(train[:, 2].mean())
    nll = -normal.logpdf(test[:, :2]) - end.logpmf(test[:, 2])
    return {"one Gaussian": {"test_nll": float(nll.mean())}}


def untrained(args: Namespace, data: strokes.Handwriting) -> dict[str, float]:
    """The density of a model as it starts."""
    return {"test_nll": make_task(args, data).evaluate(args)["val_nll"]}


RACE = plotting.Panel("test NLL", lambda row: row["val_nll"])

PROCEDURE = runs.Procedure(
    load_data=load_data,
    make_task=make_task,
    train=train,
    check=check,
    panels=(
        plotting.Panel("training NLL (nats per point)", lambda r: r["nll"]),
        plotting.Panel("test NLL (nats per point)", lambda r: r["val_nll"]),
    ),
    columns={"training NLL": "train_nll", "test NLL": "test_nll"},
    race=RACE,
    describe=describe,
    floors=floors,
    untrained=untrained,
    held_out=strokes.Handwriting.held_out,
)
