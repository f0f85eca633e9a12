"""Reading and answering: section 6.2 and figure 2 of the paper.

An LSTM reads a passage, another one a query that lacks the name of an entity,
and attention looks the name up in the passage (Hermann et al., 2015, in the
set-up of Cooijmans et al., "Recurrent Batch Normalization", 2016):

    none              LSTM
    batch             BNLSTM, statistics of each time step
    batch-everywhere  and batch normalisation in attention and output
    layer             LNLSTM

The paper's claim: layer normalisation trains faster than all the others and
ends with the lowest validation error.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import attentive_reader_model as reader
import keras
from common import callbacks, cli, plotting, training
from common.datasets import cloze, streams
from common.errors import InputError
from keras import layers, ops

EVALUATION_BATCH = 128


def build_model(
    norm: str = "layer",
    units: int = 240,
    passage_length: int = 300,
    query_length: int = 100,
    vocabulary: int = 120_000,
    dropout: float = 0.5,
    gain: float | None = None,
    momentum: float = 0.99,
    spread: float = 0.01,
    seed: int = 0,
) -> keras.Model:
    """Builds the network; passages and queries, both in numbers, to logits.

    Args:
        norm: one of `attentive_reader_model.KINDS`.
        units: the size of embedding, LSTMs and attention.
        passage_length: the words of the longest passage.
        query_length: those of the longest query.
        vocabulary: the words and markers, and the padding 0.
        dropout: share of embedded words, and of what goes to the softmax,
            that is dropped.
        gain: initial gain of the normalisations; None for the layers' own.
        momentum: share of its statistics that batch normalisation keeps.
        spread: standard deviation of the embeddings at the start.
        seed: of what is random in training.
    """
    embed = layers.Embedding(
        vocabulary,
        units,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=spread),
        name="embedding",
    )
    drop = layers.Dropout(dropout, seed=seed)

    # Its own for each start: equal seeds would be equal noise.
    noise = iter((seed + 2, seed + 3))

    def read(words, name, **kwargs):
        mask = ops.not_equal(words, cloze.PADDING)
        h, c = reader.InitialState(units, name=f"{name}_start")(words)
        if reader.uses_batches(norm):
            # Equal states of a batch would have no variance.
            h = layers.GaussianNoise(reader.START, seed=next(noise))(h)
        lstm = reader.lstm(norm, units, gain, momentum, name=name, **kwargs)
        # Keras hands on no mask where there is an initial state.
        states = lstm(drop(embed(words)), initial_state=[h, c], mask=mask)
        return states, mask

    passage = keras.Input((passage_length,), dtype="int32", name="passage")
    query = keras.Input((query_length,), dtype="int32", name="query")
    states, mask = read(passage, "read_passage", return_sequences=True)
    question, _ = read(query, "read_query")
    found = reader.Attention(
        units, norm == "batch-everywhere", gain, momentum, name="attention"
    )(states, question, mask=mask)
    found = layers.Dropout(dropout, seed=seed + 1)(found)
    answer = layers.Dense(vocabulary, dtype="float32", name="answer")
    return keras.Model([passage, query], answer(found))


def load_data(args: Namespace) -> cloze.Cloze:
    """Loads questions, a few of them for --smoke."""
    data = cloze.load(args)
    if args.smoke:
        return data._replace(
            train=data.train.first(256), validation=data.validation.first(128)
        )
    return data


def check(args: Namespace, data: cloze.Cloze) -> None:
    """Refuses batch sizes that the data or the kind do not allow."""
    examples = len(data.train.answers)
    if args.batch_size > examples:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the {examples} "
            "training questions"
        )
    if reader.uses_batches(args.norm) and args.batch_size < 2:
        raise InputError(
            f"--norm {args.norm} needs a --batch-size of at least 2"
        )
    training.check_evaluate_every(args, examples // args.batch_size)
    training.held_out(args, len(data.validation.answers), EVALUATION_BATCH)


def make_task(args: Namespace, data: cloze.Cloze) -> training.Task:
    """Compiles the model, which learns to name the entity."""
    model = build_model(
        args.norm,
        args.units,
        data.train.passages.shape[1],
        data.train.queries.shape[1],
        len(data.vocabulary),
        args.dropout,
        args.gain,
        args.momentum,
        args.spread,
        args.seed,
    )
    updates_per_pass = len(data.train.answers) // args.batch_size
    tested, batch = training.held_out(
        args, len(data.validation.answers), EVALUATION_BATCH
    )
    model.compile(
        keras.optimizers.Adam(args.learning_rate, global_clipnorm=10.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **training.speed(args.evaluate_every or updates_per_pass),
    )
    return training.Task(
        model,
        lambda update: cloze.batches(data, args.batch_size, args.seed, update),
        updates_per_pass,
        streams.in_order(data.validation.first(tested), batch).map(
            lambda passages, queries, answers: ((passages, queries), answers)
        ),
        data.vocabulary,
    )


def train(
    args: Namespace, data: cloze.Cloze, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains and evaluates one kind."""
    history = make_task(args, data).fit(folder, args)
    last = history.rows[-1]
    metrics = {
        "train_nll": last["loss"],
        "validation_nll": last["val_loss"],
        "validation_error_percent": 100 * error_rate(last),
        "best_validation_error_percent": 100
        * min(map(error_rate, history.rows)),
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def error_rate(row: Mapping[str, float]) -> float:
    """The share of wrong answers to the validation questions."""
    return 1 - row["val_accuracy"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add_gain(parser)
    cli.add_counts(
        parser,
        sentences="sentences to which a passage is cut",
        length="words to which a passage is cut",
        entities="the most that a question may have, or is left out",
        words="the most frequent words, which are known",
    )
    for name, what in (
        ("--dropout", "share of inputs and outputs to drop, below 1"),
        ("--momentum", "share of its statistics that batch norm. keeps"),
    ):
        parser.add_argument(name, type=cli.share, metavar="X", help=what)
    parser.add_argument(
        "--spread",
        type=cli.positive_number,
        metavar="X",
        help="standard deviation of the embeddings at the start",
    )


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=reader.KINDS,
    default_kind="layer",
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 12,
            "batch_size": 32,
            "units": 64,
            "learning_rate": 1e-3,
            "sentences": 4,
            "length": 40,
            "entities": 5,
            "words": 300,
            "dropout": 0.0,
            "momentum": 0.95,
            "spread": 1.0,
        },
        "paper": {
            "data": "tfds",
            "epochs": 8,
            "batch_size": 64,
            "units": 240,
            "learning_rate": 8e-5,
            "sentences": 4,
            "length": 300,
            "entities": 1_000,
            "words": 120_000,
            "dropout": 0.5,
            "momentum": 0.99,
            "spread": 0.01,
        },
    },
    smoke={"epochs": 2, "units": 8},
    load_data=load_data,
    train=train,
    check=check,
    compared={"gain": (0.1, 1.0)},
    without_gain=("none",),
    add_arguments=_add_arguments,
    panels=(
        plotting.Panel("training NLL (nats)", lambda row: row["loss"]),
        plotting.Panel("validation error rate", error_rate),
    ),
    columns={
        "training NLL": "train_nll",
        "validation NLL": "validation_nll",
        "validation error (%)": "validation_error_percent",
        "best": "best_validation_error_percent",
    },
    race=plotting.Panel("validation error", error_rate),
    make_task=make_task,
    progress=plotting.UPDATES,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    return cli.run(EXPERIMENT, argv)


if __name__ == "__main__":
    sys.exit(main())
