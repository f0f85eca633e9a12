"""Chance and trivial baselines, by the names of their rows."""

import math
import warnings
from collections.abc import Mapping

import numpy as np

from common import ranking, sentence_evaluation
from common.datasets import books, captions, plain_text, sequences

# The most examples and iterations of a linear baseline, which takes seconds
# also with large data sets.
EXAMPLES, ITERATIONS = 10_000, 200
WORDS = 1_000  # The most frequent words.

Floors = dict[str, dict[str, float]]


def of_classes(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> Floors:
    """Chance and logistic regression, from examples (N, ...), labels (N,).

    A regression that never saw a class has no finite NLL; there is none if all
    training labels are equal.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    (x, y), (test_x, test_y) = (
        (x.reshape(len(x), -1), y) for x, y in (train, test)
    )
    classes = len(np.union1d(y, test_y))
    found = {
        "chance": {
            "test_nll": float(np.log(classes)),
            "test_error_percent": 100 * (1 - 1 / classes),
        }
    }
    x, y = x[:EXAMPLES], y[:EXAMPLES]
    if len(np.unique(y)) == 1:
        return found
    model = LogisticRegression(max_iter=ITERATIONS)
    with warnings.catch_warnings():
        # It may stop before it has converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    right = model.predict(test_x) == test_y
    metrics = {"test_error_percent": 100 * float(1 - right.mean())}
    place = np.searchsorted(model.classes_, test_y)
    if np.isin(test_y, model.classes_).all():
        logs = model.predict_log_proba(test_x)
        own = logs[np.arange(len(place)), place]
        metrics["test_nll"] = float(-own.mean())
    return found | {f"logistic regression of {len(x):,}": metrics}


def of_captions(
    data: captions.Captions, tested: captions.Split, fold: int
) -> Floors:
    """Chance, and retrieval by the cosine of images and predicted features.

    A linear regression predicts an image's features from the counts of the
    most frequent words.

    Args:
        data: the training data of the regression.
        tested: the captions and images to search.
        fold: the number of images in a fold.
    """
    from sklearn.linear_model import Ridge
    from sklearn.metrics.pairwise import cosine_similarity

    known = min(len(data.vocabulary), captions.UNKNOWN + 1 + WORDS)

    def counts(words):
        found = count_words(words, known)
        return found[:, captions.UNKNOWN + 1 :]

    words, features = data.train.first(EXAMPLES // captions.EACH)
    mean = features.mean(axis=0)
    targets = np.repeat(features - mean, captions.EACH, axis=0)
    foreseen = Ridge().fit(counts(words), targets).predict(counts(tested.words))
    random = np.random.default_rng(0)
    return {
        "chance": ranking.fold_measures(
            tested.words,
            tested.features,
            lambda *both: random.random(tuple(map(len, both))),
            fold,
        ),
        "bag of words": ranking.fold_measures(
            foreseen, tested.features - mean, cosine_similarity, fold
        ),
    }


def of_sequences(task: str, data: sequences.Sequences) -> Floors:
    """Constant predictions, and linear models or counts."""
    if task == "chorales":
        return _of_notes(data)
    if task == "spelling":
        return _of_phones(data)
    if data.y.dtype.kind == "f":
        return _of_numbers(data)
    if task in ("addition", "characters"):
        return _of_tokens(task == "characters", data)
    given = [data.x, data.test_x]
    if task == "verses":
        given = [
            count_words(x, len(data.tokens))[:, plain_text.UNKNOWN + 1 :]
            for x in given
        ]
    parts = zip(given, (data.y, data.test_y), strict=True)
    columns = {"test_nll": "test_loss", "test_error_percent": "test_error"}
    return {
        name: {columns[key]: value for key, value in metrics.items()}
        for name, metrics in of_classes(*parts).items()
    }


def _of_numbers(data: sequences.Sequences) -> Floors:
    from sklearn.linear_model import Ridge

    x, test_x = (part.reshape(len(part), -1) for part in (data.x, data.test_x))
    few = slice(EXAMPLES)
    model = Ridge().fit(x[few], data.y[few])
    found = {}
    for name, foreseen in (
        ("mean", data.y.mean(axis=0)),
        ("linear regression", model.predict(test_x).reshape(-1, 1)),
    ):
        loss = float(np.mean((data.test_y - foreseen) ** 2))
        found[name] = {"test_loss": loss, "test_error": math.sqrt(loss)}
    return found


def _of_phones(data: sequences.Sequences) -> Floors:
    """Guesses, and the frequency of each phone, or the end, at its place."""
    places, classes = data.y.shape[1], len(data.tokens)
    counts = np.zeros((places, classes))
    counts[:, np.unique(data.y)] = 1
    np.add.at(counts, (np.indices(data.y.shape)[1], data.y), 1)
    counts[:, plain_text.PADDING] = 0
    shares = counts / counts.sum(axis=1, keepdims=True)
    there = data.test_y != plain_text.PADDING
    place = np.indices(data.test_y.shape)[1]
    right = shares.argmax(axis=1) == data.test_y
    logs = np.log(shares[place[there], data.test_y[there]])
    known = np.count_nonzero(shares[0])
    return {
        "chance": {"test_loss": math.log(known), "test_error": 100.0},
        "frequencies": {
            "test_loss": -float(logs.mean()),
            "test_error": 100 * float(1 - (right | ~there).all(axis=1).mean()),
        },
    }


def _of_notes(data: sequences.Sequences) -> Floors:
    """Guesses, the frequency of each pitch, and the chord before.

    As for the models, the error is a mean over chorales, without their silent
    frames.
    """
    there, tested = (x[..., -1] > 0 for x in (data.x, data.test_x))
    sounds, wanted = data.test_y[tested], data.test_y > 0
    share = (data.y[there].sum(axis=0) + 1) / (there.sum() + 2)
    logs = np.where(sounds > 0, np.log(share), np.log1p(-share))
    last = (data.test_x[..., :-1] > 0) & wanted.any(axis=-1, keepdims=True)
    both, any_ = (
        own.sum(axis=(1, 2)) for own in (wanted & last, wanted | last)
    )
    return {
        "chance": {"test_loss": sounds.shape[-1] * math.log(2)},
        "frequencies": {"test_loss": -float(logs.sum(axis=-1).mean())},
        "the chord before": {
            "test_error": 100 * float(1 - (both / any_).mean())
        },
    }


def _of_tokens(after: bool, data: sequences.Sequences) -> Floors:
    """Guesses, and frequencies of tokens by place or by the last token."""
    given, test_given = (
        x if after else np.indices(y.shape)[1]
        for x, y in ((data.x, data.y), (data.test_x, data.test_y))
    )
    classes = len(data.tokens)
    counts = np.ones((given.max() + 1, classes))
    np.add.at(counts, (given, data.y), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    right = shares.argmax(axis=1)[test_given] == data.test_y
    answers = 1 if after else data.y.shape[1]
    return {
        "chance": {
            "test_loss": math.log(classes),
            "test_error": 100 * (1 - classes**-answers),
        },
        "frequencies": {
            "test_loss": float(-np.log(shares[test_given, data.test_y]).mean()),
            "test_error": 100
            * (1 - float(np.mean(right if after else right.all(axis=1)))),
        },
    }


def of_sentences(
    text: books.Books, tasks: Mapping[str, sentence_evaluation.Task]
) -> Floors:
    """Words by their frequencies, and sentences by their words."""
    counts, test = (
        np.bincount(
            np.concatenate([text.sentences[n + k].ravel() for k in (-1, 1)]),
            minlength=len(text.words),
        )[plain_text.END :]
        for n in (text.train, text.test)
    )
    known = [*text.words[:WORDS]]
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
        "bag of words": sentence_evaluation.evaluate(tasks, encode),
    }


def count_words(words: np.ndarray, known: int) -> np.ndarray:
    """How often the rows (N, T) have each number below `known`."""
    counts = np.zeros((len(words), known), np.float32)
    rows, places = np.nonzero(words < known)
    np.add.at(counts, (rows, words[rows, places]), 1)
    return counts
