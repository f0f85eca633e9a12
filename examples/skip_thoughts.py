"""Sentence vectors: skip-thoughts, section 6.3, figure 3 and table 3.

A GRU reads a sentence, and from its last state two others write the sentences
before and after it (Kiros et al., 2015). What that state is good for is
measured every --evaluate-every updates, without changing it:

    none   GRU
    layer  GRU with layer normalisation, eq. 26 to 28

The paper's claim: with layer normalisation training is faster, and the results
after a million updates are better on all tasks. The embedded data are the King
James Bible, and the tasks to find verses in the World English Bible and to tell
books apart; with --eval-dir they are those of the paper, from their published
files.
"""

import argparse
import dataclasses
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import skip_thoughts_model
from common import (
    callbacks,
    cli,
    plotting,
    sentence_evaluation,
    training,
)
from common.datasets import books, plain_text, sentence_tasks
from common.errors import InputError

EVALUATION_BATCH = 128
SMOKE_SENTENCES = 1_500


class Data(NamedTuple):
    """A text, and what the vectors of sentences are measured with."""

    books: books.Books
    tasks: Mapping[str, sentence_evaluation.Task]
    vectors: Mapping[str, np.ndarray]  # of words; empty without --word-vectors


def build_model(
    norm: str = "layer",
    units: int = 2_400,
    word_units: int = 620,
    vocabulary: int = 20_000,
    length: int = 30,
    gain: float | None = None,
) -> keras.Model:
    """Builds encoder and decoders; see `skip_thoughts_model.build`.

    Args:
        norm: one of `skip_thoughts_model.KINDS`.
        units: the size of a sentence's vector.
        word_units: the size of a word's.
        vocabulary: the words, beside the marks of `books`.
        length: the most words of a sentence.
        gain: initial gain of the layer normalisation; None for 1.
    """
    return skip_thoughts_model.build(
        norm,
        units,
        word_units,
        len(plain_text.MARKS) + vocabulary,
        length,
        gain,
    )


def load_data(args: Namespace) -> Data:
    """Loads the text and the tasks."""
    if args.eval_tasks and not args.eval_dir:
        raise InputError("--eval-tasks names tasks of --eval-dir")
    tasks: Mapping[str, sentence_evaluation.Task]
    if args.eval_dir:
        names = args.eval_tasks or sentence_tasks.TASKS
        tasks = sentence_tasks.load(Path(args.eval_dir), names)
    else:
        verses = sentence_evaluation.bible_verses()
        tasks = {"verses": verses.every(10) if args.smoke else verses}
    text = books.load(args)
    if args.smoke:
        text = text.first(SMOKE_SENTENCES)
    known = set(text.words[len(plain_text.MARKS) :])
    asked = {
        name: sentence_evaluation.words_of(task) for name, task in tasks.items()
    }
    vectors: Mapping[str, np.ndarray] = {}
    if args.word_vectors:
        vectors = sentence_tasks.read_word_vectors(
            Path(args.word_vectors), known.union(*asked.values())
        )
        sentence_evaluation.shared_words(known, vectors)
    for name, words in asked.items():
        if words.isdisjoint(known) and words.isdisjoint(vectors):
            raise InputError(
                f"none of the words of the task {name} is among those of the "
                "text; name a text in the language of the task with --data"
            )
    return Data(text, tasks, vectors)


def updates_per_pass(args: Namespace, text: books.Books) -> int:
    """The batches of a pass, down to a multiple of --evaluate-every."""
    groups = books.groups(text, args.batch_size)
    updates = sum(len(own) // args.batch_size for _, own in groups)
    if args.evaluate_every and args.evaluate_every <= updates:
        updates -= updates % args.evaluate_every
    return updates


def check(args: Namespace, data: Data) -> None:
    """Refuses sizes that the text does not allow."""
    updates = updates_per_pass(args, data.books)
    if not updates:
        raise InputError(
            f"--batch-size {args.batch_size} is more than the sentences of any "
            f"one length among the {len(data.books.train)} to learn from"
        )
    training.check_evaluate_every(args, updates)
    training.held_out(args, len(data.books.test), EVALUATION_BATCH)


def compile_model(model: keras.Model, learning_rate: float) -> None:
    """Gives the model its loss, in nats and summed over a batch.

    So do Kiros et al., whose clipping therefore acts in almost every update.
    """
    crossentropy = {"from_logits": True}
    # Without `training.speed`: XLA would compile the whole step anew for each
    # length of sentences.
    model.compile(
        keras.optimizers.Adam(learning_rate, global_clipnorm=5.0),
        keras.losses.SparseCategoricalCrossentropy(
            reduction="sum", **crossentropy
        ),
        weighted_metrics=[
            keras.metrics.SparseCategoricalCrossentropy("nll", **crossentropy)
        ],
    )


def make_task(args: Namespace, data: Data) -> training.Task:
    """Compiles the model for the text."""
    text = data.books
    model = build_model(
        args.norm,
        args.units,
        args.word_units,
        len(text.words) - len(plain_text.MARKS),
        args.length,
        args.gain,
    )
    compile_model(model, args.learning_rate)
    updates = updates_per_pass(args, text)
    tested, batch = training.held_out(args, len(text.test), EVALUATION_BATCH)
    return training.Task(
        model,
        lambda update: books.batches(
            text, args.batch_size, args.seed, updates, update
        ),
        updates,
        books.in_order(text._replace(test=text.test[:tested]), batch),
        text.words,
    )


def measure(model: keras.Model, data: Data) -> dict[str, float]:
    """What the vectors of sentences are good for, by name of the measure."""
    words = data.books.words
    table = skip_thoughts_model.word_vectors(model)
    others: dict[str, np.ndarray] = {}
    if data.vectors:
        known = dict(zip(words, table, strict=True))
        for mark in plain_text.MARKS:
            del known[mark]
        others = sentence_evaluation.expand_vocabulary(known, data.vectors)
        table = np.concatenate([table, *(v[None] for v in others.values())])
    encode = skip_thoughts_model.SentenceEncoder(
        model, [*words, *others], table
    )
    return sentence_evaluation.evaluate(data.tasks, encode)


def train(
    args: Namespace, data: Data, folder: Path
) -> tuple[dict[str, float], callbacks.History]:
    """Trains one kind and measures it on the way."""
    task = make_task(args, data)
    evaluation = sentence_evaluation.Evaluation(
        lambda model: measure(model, data)
    )
    history = task.fit(folder, args, extra_callbacks=[evaluation])
    last = history.rows[-1]
    metrics = {"train_nll": last["nll"], "test_nll": last["val_nll"]}
    metrics |= {
        name.removeprefix("val_"): value
        for name, value in last.items()
        if name.startswith("val_") and name not in ("val_loss", "val_nll")
    }
    metrics |= {"epochs": last["epoch"], "updates": last["updates"]}
    return metrics, history


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    cli.add_gain(parser)
    cli.add_counts(
        parser,
        word_units="size of a word's vector",
        vocabulary="the most frequent words, which are known",
        length="words after which a sentence is cut",
    )
    parser.add_argument(
        "--eval-dir",
        type=cli.absolute,
        metavar="DIR",
        help="the folder of the published files of the tasks",
    )
    parser.add_argument(
        "--eval-tasks",
        nargs="+",
        choices=sentence_tasks.TASKS,
        metavar="TASK",
        help=f"of {', '.join(sentence_tasks.TASKS)} (default: all)",
    )
    parser.add_argument(
        "--word-vectors",
        type=cli.absolute,
        metavar="FILE",
        help="word2vec vectors in its text format, for words not in the text",
    )


NLL = plotting.Panel("held-out NLL (nats per word)", lambda r: r["val_nll"])

VERSE_MEASURES = {
    "verses_r1": "alignment R@1 (%)",
    "verses_r5": "R@5 (%)",
    "verses_r10": "R@10 (%)",
    "verses_mean_rank": "mean rank of 1000",
    "verses_book_accuracy": "book accuracy (%)",
}
TASK_MEASURES = {
    "sick_pearson": "SICK r",
    "sick_spearman": "SICK rho",
    "sick_mse": "SICK MSE",
    "mr": "MR (%)",
    "cr": "CR (%)",
    "subj": "SUBJ (%)",
    "mpqa": "MPQA (%)",
}


def _panels(measures: Mapping[str, str]) -> list[plotting.Panel]:
    return [NLL] + [
        plotting.Panel(label, lambda row, name=f"val_{name}": row[name])
        for name, label in measures.items()
    ]


def _columns(measures: Mapping[str, str]) -> dict[str, str]:
    return {
        "held-out NLL": "test_nll",
        **{label: name for name, label in measures.items()},
    }


EXPERIMENT = cli.Experiment(
    name=Path(__file__).stem,
    description=__doc__,
    kinds=skip_thoughts_model.KINDS,
    default_kind="layer",
    without_gain=("none",),
    presets={
        "quick": {
            "data": "embedded",
            "epochs": 2,
            "batch_size": 64,
            "units": 128,
            "learning_rate": 2e-3,
            "evaluate_every": 100,
            "word_units": 64,
            "vocabulary": 2_000,
            "length": 20,
        },
        "paper": {
            "data": "tfds",  # Which says what is wanted.
            "epochs": 1,
            "batch_size": 64,
            "units": 2_400,
            "learning_rate": 2e-4,
            "evaluate_every": 1_000,
            "word_units": 620,
            "vocabulary": 20_000,
            "length": 30,
        },
    },
    smoke={
        "epochs": 2,
        "units": 8,
        "word_units": 8,
        "vocabulary": 200,
        "length": 6,
        "evaluate_every": 4,
    },
    load_data=load_data,
    train=train,
    check=check,
    add_arguments=_add_arguments,
    panels=_panels(
        {
            "verses_r10": "verse alignment R@10 (%)",
            "verses_mean_rank": "mean rank of 1000 verses",
            "verses_book_accuracy": "accuracy of books (%)",
        }
    ),
    columns=_columns(VERSE_MEASURES),
    race=NLL,
    make_task=make_task,
    progress=plotting.UPDATES,
)


def with_tasks(names: Sequence[str]) -> cli.Experiment:
    """The experiment with the published tasks in table and figure."""
    measures = {
        measure: label
        for measure, label in TASK_MEASURES.items()
        if measure.split("_")[0] in names
    }
    return dataclasses.replace(
        EXPERIMENT, panels=_panels(measures), columns=_columns(measures)
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script."""
    argv = sys.argv[1:] if argv is None else argv
    given = cli.parse(EXPERIMENT, argv, prog=f"{EXPERIMENT.name}.py")
    experiment = EXPERIMENT
    if given.eval_dir:
        experiment = with_tasks(given.eval_tasks or sentence_tasks.TASKS)
    return cli.run(experiment, argv)


if __name__ == "__main__":
    sys.exit(main())
