"""Handwriting: section 6.5 and figure 5 of the paper.

Three LSTMs, one of which moves a window over the text, learn how the pen goes
on, and write (Graves, 2013, section 5):

    none   LSTM
    layer  LSTM with layer normalisation

The paper's claim: both end at about the same negative log-likelihood, and layer
normalisation gets there sooner.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import handwriting_model
import keras
import numpy as np
from common import callbacks, cli, plotting, training
from common.datasets import streams, strokes
from common.errors import InputError
from keras import layers, ops

EVALUATION_BATCH = 64

TEXTS = ("the lord", "And God", "of Egypt", "his son")


def build_model(
    norm: str = "layer",
    units: int = 400,
    steps: int = 500,
    characters: int = 64,
    symbols: int = strokes.SYMBOLS,
    gaussians: int = 10,
    components: int = 20,
    pace: float = 0.04,
    gain: float | None = None,
) -> keras.Model:
    """Builds the network; points and symbols to the density's parameters.

    Args:
        norm: one of `handwriting_model.KINDS`.
        units: the size of each of the three LSTMs.
        steps: the points of a line.
        characters: those of the longest text.
        symbols: the size of the alphabet.
        gaussians: those of the window.
        components: those of the mixture.
        pace: characters per point at which the window starts to move.
        gain: initial gain of the layer normalisation; None for 1.
    """
    points = keras.Input((steps, 3), name="points")
    text = keras.Input((characters,), dtype="int32", name="symbols")
    window = handwriting_model.Window(
        norm=norm,
        units=units,
        symbols=symbols,
        gaussians=gaussians,
        pace=pace,
        gain=gain,
        name="window",
    )
    seen = window(points, text)
    outputs, window_seen = [seen[..., :units]], seen[..., units:]
    for name in ("lstm_2", "lstm_3"):
        layer = handwriting_model.lstm(norm, units, gain, name=name)
        x = ops.concatenate([points, outputs[-1], window_seen], axis=-1)
        outputs.append(layer(x))
    x = ops.concatenate(outputs, axis=-1)
    density = layers.Dense(1 + 6 * components, dtype="float32", name="density")
    return keras.Model([points, text], density(x))


def load_data(args: Namespace) -> strokes.Handwriting:
    """Loads lines of text, a few of them for --smoke."""
    data = strokes.load(args)
    if args.smoke:
        return strokes.Handwriting(data.train.first(64), data.test.first(64))
    return data


def check(args: Namespace, data: strokes.Handwriting) -> None:
    """Refuses sizes that the data, and texts that the alphabet do not allow."""
    examples = len(data.train.points)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training lines"
        )
    for text in args.text:
        unknown = sorted(set(text) - set(strokes.ALPHABET))
        if unknown or not text:
            raise InputError(
                f"--text: expected characters of '{strokes.ALPHABET}', "
                f"received {text!r}"
            )
    training.check_evaluate_every(args, examples // args.batch_size)
    training.held_out(args, len(data.test.points), EVALUATION_BATCH)


def make_task(args: Namespace, data: strokes.Handwriting) -> training.Task:
    """Compiles the model, whose loss is in nats per point."""
    written = data.train.valid.sum()
    pace = float(np.count_nonzero(data.train.symbols) / written)
    model = build_model(
        args.norm,
        args.units,
        data.train.points.shape[1],
        data.train.symbols.shape[1],
        pace=pace,
        gain=args.gain,
    )
    updates_per_pass = len(data.train.points) // args.batch_size
    model.compile(
        keras.optimizers.Adam(args.learning_rate, global_clipnorm=10.0),
        _MixtureNLL(reduction="mean_with_sample_weight"),
        weighted_metrics=[
            keras.metrics.MeanMetricWrapper(
                handwriting_model.mixture_nll, name="nll"
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

    tested, batch = training.held_out(
        args, len(data.test.points), EVALUATION_BATCH
    )
    train, test = shifted(*data.train), shifted(*data.test.first(tested))
    return training.Task(
        model,
        lambda update: streams.shuffled(
            train, args.batch_size, args.seed, update
        ).map(as_fit_wants),
        updates_per_pass,
        streams.in_order(test, batch).map(as_fit_wants),
    )


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class _MixtureNLL(keras.losses.Loss):
    def call(self, points, outputs):
        return handwriting_model.mixture_nll(points, outputs)


def train(
    args: Namespace, data: strokes.Handwriting, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind; writes samples.png."""
    task = make_task(args, data)
    print(f"{task.model.count_params():,} weights")
    history = task.fit(folder, args)
    symbols = strokes.encode_all(args.text)
    ways = handwriting_model.write(
        task.model,
        symbols,
        length=2 * data.train.points.shape[1],
        bias=args.bias,
        random=np.random.default_rng(args.seed),
    )
    plotting.handwriting(ways, args.text, folder / "samples.png")
    last = history.rows[-1]
    metrics = {
        "train_nll": last["nll"],
        "test_nll": last["val_nll"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add_gain(parser)
    parser.add_argument(
        "--length",
        type=cli.positive_integer,
        metavar="N",
        help="points after which a line is cut",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="STRING",
        help="what the trained model shall write",
    )
    parser.add_argument(
        "--bias",
        type=cli.nonnegative_number,
        metavar="X",
        help="0 for samples of the learned density, more for clearer ones",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=handwriting_model.KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 15,
            "batch_size": 32,
            "units": 64,
            "learning_rate": 3e-3,
            "length": 500,
            "text": TEXTS,
            "bias": 1.0,
        },
        "paper": {
            "data": "tfds",
            "epochs": 50,
            "batch_size": 8,
            "units": 400,
            "learning_rate": 1e-3,
            "length": 500,
            "text": TEXTS,
            "bias": 1.0,
        },
    },
    smoke={"epochs": 2, "units": 8, "length": 20},
    load_data=load_data,
    train=train,
    check=check,
    add_arguments=_add_arguments,
    panels=(
        plotting.Panel("training NLL (nats per point)", lambda r: r["nll"]),
        plotting.Panel("test NLL (nats per point)", lambda r: r["val_nll"]),
    ),
    columns={"training NLL": "train_nll", "test NLL": "test_nll"},
    race=plotting.Panel("test NLL", lambda row: row["val_nll"]),
    make_task=make_task,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
