"""Data, training and measures of `skip_thoughts.py`."""

import dataclasses
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
import skip_thoughts_model
from common import (
    baselines,
    callbacks,
    devices,
    plotting,
    runs,
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


def load_data(args: Namespace) -> Data:
    """Loads the text and the tasks."""
    tasks: dict[str, sentence_evaluation.Task] = {}
    names = ["verses"]
    if args.eval_dir:
        names = [*(args.eval_tasks or sentence_tasks.TASKS)]
        files = [name for name in names if name != "verses"]
        tasks.update(sentence_tasks.load(Path(args.eval_dir), files))
    if "verses" in names:
        verses = sentence_evaluation.bible_verses()
        tasks["verses"] = verses.every(10) if args.smoke else verses
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
    devices.held_out(args, len(data.books.test), EVALUATION_BATCH)


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
    learnt = training.learnt(args, text)
    model = skip_thoughts_model.build_model(
        args.norm,
        args.units,
        args.word_units,
        len(text.words) - len(plain_text.MARKS),
        args.length,
        args.gain,
        args.word_scale,
    )
    compile_model(model, args.learning_rate)
    updates = updates_per_pass(args, learnt)

    def evaluated(part):
        tested, batch = devices.held_out(args, len(part.test), EVALUATION_BATCH)
        return books.in_order(part._replace(test=part.test[:tested]), batch)

    return training.Task(
        model,
        lambda update: books.batches(
            learnt, args.batch_size, args.seed, updates, update
        ),
        updates,
        evaluated(text),
        evaluated(learnt) if args.tune else None,
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
    last, end = history.rows[-1], training.end(history.rows)
    metrics = {"train_nll": last["nll"], "test_nll": end["val_nll"]}
    metrics |= {
        name.removeprefix("val_"): value
        for name, value in end.items()
        if name.startswith("val_") and name not in ("val_loss", "val_nll")
    }
    metrics |= {
        "end_updates": end["updates"],
        "epochs": last["epoch"],
        "updates": last["updates"],
    }
    return metrics, history


def describe(args: Namespace, data: Data) -> str:
    """What the text is, and how long."""
    names = {"embedded": "King James Bible"}
    name = names.get(args.data, Path(args.data).name)
    count = len(training.learnt(args, data.books).train)
    return (
        f"{name}, {count:,} training and "
        f"{len(data.books.test):,} held-out sentences"
    )


def floors(_: Namespace, data: Data) -> dict[str, dict[str, float]]:
    """Words by their frequency, and sentences by the words that they have."""
    text = data.books
    counts, test = (
        np.bincount(
            np.concatenate([text.sentences[n + k].ravel() for k in (-1, 1)]),
            minlength=len(text.words),
        )[plain_text.END :]
        for n in (text.train, text.test)
    )
    known = [*text.words[: baselines.WORDS]]
    index = {word: number for number, word in enumerate(known)}

    def encode(sentences):
        found = np.zeros((len(sentences), len(known)), np.float32)
        for row, sentence in zip(found, sentences, strict=True):
            words = plain_text.tokens(sentence)
            np.add.at(row, plain_text.encode(words, index), 1)
        return found[:, len(plain_text.MARKS) :]

    shares = (counts + 1) / (counts + 1).sum()
    nll = -float(test @ np.log(shares) / test.sum())
    return {
        "chance": {"test_nll": float(np.log(len(text.words)))},
        "frequencies of words": {"test_nll": nll},
        "bag of words": sentence_evaluation.evaluate(data.tasks, encode),
    }


def untrained(args: Namespace, data: Data) -> dict[str, float]:
    """What the vectors of a model are good for as it starts."""
    task = make_task(args, data)
    found = {"test_nll": task.evaluate(args)["val_nll"]}
    return found | measure(task.model, data)


def held_out(data: Data) -> Data:
    """The data without the held-out sentences: some of the others instead."""
    return data._replace(books=data.books.held_out())


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


PROCEDURE = runs.Procedure(
    load_data=load_data,
    make_task=make_task,
    train=train,
    check=check,
    panels=_panels(
        {
            "verses_r10": "verse alignment R@10 (%)",
            "verses_mean_rank": "mean rank of 1000 verses",
            "verses_book_accuracy": "accuracy of books (%)",
        }
    ),
    columns=_columns(VERSE_MEASURES),
    race=NLL,
    progress=plotting.UPDATES,
    describe=describe,
    floors=floors,
    untrained=untrained,
    held_out=held_out,
    criterion=NLL,
)


def with_tasks(names: Sequence[str]) -> runs.Procedure:
    """The procedure with these tasks in table and figure."""
    known = TASK_MEASURES | VERSE_MEASURES
    of_tasks = {measure: measure.split("_")[0] for measure in known}
    measures = {m: known[m] for m, task in of_tasks.items() if task in names}
    measures |= {
        name: f"{name} (%)" for name in names if name not in of_tasks.values()
    }
    return dataclasses.replace(
        PROCEDURE, panels=_panels(measures), columns=_columns(measures)
    )
