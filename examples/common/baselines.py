"""Chance and trivial baselines, by the names of their rows."""

import warnings

import numpy as np

from common import ranking
from common.datasets import captions

# What a linear baseline learns from, and how often it goes over that at most:
# it takes seconds, also of large data sets.
EXAMPLES, ITERATIONS = 10_000, 200
WORDS = 1_000  # The most frequent ones.

Floors = dict[str, dict[str, float]]


def of_classes(
    train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> Floors:
    """Chance and logistic regression, of examples (N, any) and labels (N,)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    (x, y), (test_x, test_y) = (
        (x.reshape(len(x), -1), y) for x, y in (train, test)
    )
    classes = np.unique(y)
    model = LogisticRegression(max_iter=ITERATIONS)
    with warnings.catch_warnings():
        # It may stop before it has converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x[:EXAMPLES], y[:EXAMPLES])
    logs = model.predict_log_proba(test_x)
    place = np.searchsorted(model.classes_, test_y)
    right = logs.argmax(axis=1) == place
    return {
        "chance": {
            "test_nll": float(np.log(len(classes))),
            "test_error_percent": 100 * (1 - 1 / len(classes)),
        },
        f"logistic regression of {min(len(x), EXAMPLES):,}": {
            "test_nll": float(-logs[np.arange(len(place)), place].mean()),
            "test_error_percent": 100 * float(1 - right.mean()),
        },
    }


def of_captions(
    data: captions.Captions, tested: captions.Split, fold: int
) -> Floors:
    """Chance, and retrieval by the cosine of images and predicted features.

    A linear regression predicts an image's features from the counts of the
    most frequent words.

    Args:
        data: what the regression learns from.
        tested: where is searched.
        fold: the images of a fold.
    """
    from sklearn.linear_model import Ridge

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
            foreseen,
            tested.features - mean,
            lambda texts, images: _unit(texts) @ _unit(images).T,
            fold,
        ),
    }


def count_words(words: np.ndarray, known: int) -> np.ndarray:
    """How often the rows (N, T) have each number below `known`."""
    counts = np.zeros((len(words), known), np.float32)
    rows, places = np.nonzero(words < known)
    np.add.at(counts, (rows, words[rows, places]), 1)
    return counts


def _unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo(np.float32).tiny)
