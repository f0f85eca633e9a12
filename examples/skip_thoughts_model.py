"""The network that learns sentence vectors from neighbouring sentences.

Kiros et al., "Skip-Thought Vectors" (2015), section 2. Letters: B batch, T
words of the sentence, L the most words of one, D the size of word vectors, U
units, V words that are known.
"""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from common import recurrent, sentence_evaluation
from common.datasets import books, plain_text, sentence_tasks
from common.errors import InputError
from keras import layers, ops

ENCODING_BATCH, ENCODING_STEPS = 128, 16
SMOKE_SENTENCES = 1_500


def build_model(
    norm: str = "layer",
    units: int = 2_400,
    word_units: int = 620,
    vocabulary: int = 20_000,
    length: int = 30,
    gain: float | None = None,
    word_scale: float = 1.0,
) -> keras.Model:
    """Builds an encoder and two decoders that share words and output layer.

    Args besides the flags of `skip_thoughts.py`, whose --length is L:
        vocabulary: the number of words without the marks of `plain_text`; with
            the marks it is V.

    Returns:
        From sentences (B, T) and the words before each word of the previous
        and of the next sentence (B, L + 1 each) to the logits of these
        words (B, 2 L + 2, V). 0 pads the sentences and precedes a first word.
    """
    vocabulary += len(plain_text.MARKS)
    current = keras.Input((None,), dtype="int32", name="current")
    before, after = (
        keras.Input((length + 1,), dtype="int32", name=name)
        for name in ("before", "after")
    )
    start = recurrent.words(word_scale)
    words = layers.Embedding(vocabulary, word_units, start, name="word_vectors")
    encoder = recurrent.gru(norm, units, gain, name="encoder")
    thought = encoder(words(current), mask=ops.not_equal(current, 0))
    recurrent.make_orthogonal(encoder)
    hidden = []
    for name, inputs in (("decoder_before", before), ("decoder_after", after)):
        decoder = recurrent.gru(
            norm, units, gain, name=name, return_sequences=True
        )
        hidden.append(decoder(words(inputs), initial_state=thought))
        recurrent.make_orthogonal(decoder)
    output = layers.Dense(
        vocabulary, kernel_initializer=recurrent.uniform(), name="output"
    )
    logits = output(ops.concatenate(hidden, axis=1))
    return keras.Model([current, before, after], logits)


class SentenceEncoder:
    """A trained model's encoder, which turns sentences into vectors.

    It knows the model's words, or also others, with a `table` of the vectors
    (V', D) of all `words` by number.
    """

    def __init__(
        self,
        model: keras.Model,
        words: Sequence[str],
        table: np.ndarray | None = None,
    ):
        self.table = word_vectors(model) if table is None else table
        self.index = {word: number for number, word in enumerate(words)}
        self.encoder = model.get_layer("encoder")

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """The vectors (N, U), float32, of sentences."""
        numbers = [
            plain_text.encode(plain_text.tokens(sentence), self.index)
            for sentence in sentences
        ]
        # Similar lengths in a batch, and few shapes, because each is compiled.
        order = np.argsort([len(own) for own in numbers], kind="stable")
        found = np.zeros((len(sentences), self.encoder.units), np.float32)
        for start in range(0, len(order), ENCODING_BATCH):
            chosen = order[start : start + ENCODING_BATCH]
            steps = len(numbers[chosen[-1]])
            steps += -steps % ENCODING_STEPS
            padded = np.zeros((ENCODING_BATCH, steps), np.int32)
            for row, i in zip(padded, chosen, strict=False):
                row[: len(numbers[i])] = numbers[i]
            # Not `predict`, which would distribute them over the devices.
            thoughts = self.encoder(
                ops.convert_to_tensor(self.table[padded]),
                mask=ops.convert_to_tensor(padded != plain_text.PADDING),
            )
            thoughts = ops.convert_to_numpy(ops.cast(thoughts, "float32"))
            found[chosen] = thoughts[: len(chosen)]
        return found


def word_vectors(model: keras.Model) -> np.ndarray:
    """The vectors (V, D) of the words that a model knows."""
    table = model.get_layer("word_vectors").embeddings
    return ops.convert_to_numpy(table)


class Data(NamedTuple):
    """A text, and the tasks that measure the vectors of sentences."""

    books: books.Books
    tasks: Mapping[str, sentence_evaluation.Task]
    vectors: Mapping[str, np.ndarray]  # of words; empty without --word-vectors


def load(args: Namespace) -> Data:
    """Loads the text and the tasks."""
    tasks: dict[str, sentence_evaluation.Task] = {}
    names = ["verses"]
    if args.eval_dir:
        names = [*(args.eval_tasks or sentence_tasks.FILES)]
        files = [name for name in names if name != "verses"]
        tasks.update(sentence_tasks.load(Path(args.eval_dir), files))
    if "verses" in names:
        verses = sentence_tasks.bible_verses()
        tasks["verses"] = verses.every(10) if args.smoke else verses
    text = books.load(args)
    if args.smoke:
        text = text.first(SMOKE_SENTENCES)
    if not books.updates_per_pass(args, text.held_out()):
        raise InputError(
            f"--batch-size {args.batch_size} is more than the sentences of any "
            f"one length among the {len(text.train)} training sentences"
        )
    vectors = sentence_evaluation.check_words(
        tasks, text.words[len(plain_text.MARKS) :], args.word_vectors
    )
    return Data(text, tasks, vectors)


def names_of(data: Data) -> dict[str, str]:
    """The headings of the measures by their names, most telling ones first."""
    headings = {
        "verses_r10": "alignment R@10 (%)",
        "verses_mean_rank": "mean rank of 1000",
        "verses_book_accuracy": "book accuracy (%)",
        "sick_pearson": "SICK r",
        "sick_spearman": "SICK rho",
        "sick_mse": "SICK MSE",
    }
    found = {}
    for task in data.tasks:
        own = {k: v for k, v in headings.items() if k.startswith(f"{task}_")}
        found |= own or {task: f"{task.upper()} (%)"}
    return found


def measure(model: keras.Model, data: Data) -> dict[str, float]:
    """The measures of the sentence vectors in the tasks, by name."""
    words = data.books.words
    table = word_vectors(model)
    others: dict[str, np.ndarray] = {}
    if data.vectors:
        first = len(plain_text.MARKS)
        known = dict(zip(words[first:], table[first:], strict=True))
        others = sentence_evaluation.expand_vocabulary(known, data.vectors)
        table = np.concatenate([table, *(v[None] for v in others.values())])
    encode = SentenceEncoder(model, [*words, *others], table)
    return sentence_evaluation.evaluate(data.tasks, encode)
