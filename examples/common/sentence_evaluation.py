"""Measures of sentence vectors, without changing the vectors.

Letters: N sentences, U the size of their vectors.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from common import ranking
from common.datasets import plain_text, sentence_tasks
from common.errors import InputError

# From sentences to their vectors (N, U).
Encode = Callable[[Sequence[str]], np.ndarray]

FOLDS = 10
PENALTIES = 2.0 ** np.arange(9)  # scikit-learn's C.
SCORES = np.arange(1, 6)
PROCESSES = -1  # One per core.

Task = sentence_tasks.Sick | sentence_tasks.Labelled | sentence_tasks.Verses


def evaluate(tasks: Mapping[str, Task], encode: Encode) -> dict[str, float]:
    """The results of tasks, of published ones as in the paper's table 3."""
    found = {}
    for name, task in tasks.items():
        if isinstance(task, sentence_tasks.Labelled):
            vectors = encode(task.sentences)
            found[name] = nested_accuracy(vectors, task.labels)
            continue
        verses = isinstance(task, sentence_tasks.Verses)
        own = (evaluate_verses if verses else relatedness)(task, encode)
        found |= {f"{name}_{key}": value for key, value in own.items()}
    return found


def words_of(task: Task) -> set[str]:
    """The words that occur in the sentences of a task."""
    if isinstance(task, sentence_tasks.Labelled):
        texts = task.sentences
    elif isinstance(task, sentence_tasks.Verses):
        texts = [*task.king_james, *task.world_english, *task.classified]
    else:
        texts = [s for pairs in task for s in (*pairs.first, *pairs.second)]
    return {word for text in texts for word in plain_text.tokens(text)}


def check_words(
    tasks: Mapping[str, Task], words: Sequence[str], word_vectors: str | None
) -> Mapping[str, np.ndarray]:
    """Vectors, from a file, of words of a text and of tasks."""
    known = set(words)
    asked = {name: words_of(task) for name, task in tasks.items()}
    vectors: Mapping[str, np.ndarray] = {}
    if word_vectors:
        vectors = sentence_tasks.read_word_vectors(
            Path(word_vectors), known.union(*asked.values())
        )
        shared_words(known, vectors)
    for name, own in asked.items():
        if own.isdisjoint(known) and own.isdisjoint(vectors):
            raise InputError(
                f"none of the words of the task {name} is in the "
                "text; name a text in the language of the task with --data"
            )
    return vectors


def spread(scores: np.ndarray) -> np.ndarray:
    """Scores (N,) from 1 to 5 as probabilities (N, 5) of 1, ..., 5.

    They have the score as their mean, and only the two numbers around it are
    possible (Tai, Socher and Manning, 2015, section 4.2).

    >>> spread(np.array([3.0, 4.25])).tolist()
    [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.75, 0.25]]
    """
    return np.maximum(0, 1 - np.abs(np.asarray(scores)[:, None] - SCORES))


class SpreadRegression:
    """A softmax over the scores, which learns spread targets."""

    def __init__(self, penalty: float):
        self.softmax = LogisticRegression(C=penalty, max_iter=1_000)

    def fit(self, features: np.ndarray, scores: np.ndarray) -> Any:
        """Learns from features (N, F) and scores (N,)."""
        # A spread target has the cross entropy of two examples with the shares
        # as weights.
        shares = spread(scores)
        rows, columns = np.nonzero(shares)
        weights = shares[rows, columns]
        self.softmax.fit(features[rows], SCORES[columns], weights)
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The means (N,) of the predicted distributions."""
        return self.softmax.predict_proba(features) @ self.softmax.classes_


def relatedness(task: sentence_tasks.Sick, encode: Encode) -> dict[str, float]:
    """Predicts how related two sentences are, from |u - v| and u * v.

    The regularisation is the one of `PENALTIES` with the best correlation on
    the trial pairs; Kiros et al. stop the training early instead.
    """
    vectors = ((encode(pairs.first), encode(pairs.second)) for pairs in task)
    train, trial, test = (np.c_[np.abs(u - v), u * v] for u, v in vectors)
    scores = task.train.scores
    fitted = [SpreadRegression(own).fit(train, scores) for own in PENALTIES]
    correlations = [
        stats.pearsonr(one.predict(trial), task.trial.scores).statistic
        for one in fitted
    ]
    # Constant predictions have no correlation, and count as the worst.
    best = int(np.argmax(np.nan_to_num(correlations, nan=-1.0)))
    predicted = fitted[best].predict(test)
    scores = task.test.scores
    return {
        "pearson": float(stats.pearsonr(predicted, scores).statistic),
        "spearman": float(stats.spearmanr(predicted, scores).statistic),
        "mse": float(np.mean((predicted - scores) ** 2)),
    }


def nested_accuracy(vectors: np.ndarray, labels: np.ndarray) -> float:
    """Accuracy in percent of logistic regression on vectors (N, U).

    It is the mean over 10 folds. Each fold tests a model of the other folds,
    whose penalty is the best of `PENALTIES` in 10 folds of the training data.
    """
    how = {"cv": _folds(1), "n_jobs": PROCESSES}
    model = LogisticRegression(solver="liblinear")
    search = GridSearchCV(model, {"C": PENALTIES}, **how)
    found = cross_val_score(search, vectors, labels, cv=_folds(0))
    return 100 * float(found.mean())


def _folds(seed: int) -> Any:
    return StratifiedKFold(FOLDS, shuffle=True, random_state=seed)


def expand_vocabulary(
    known: Mapping[str, np.ndarray], vectors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Vectors of unknown words, by linear regression from other vectors.

    Kiros et al., section 2.2: the regression learns from the words that both
    have to map one space into the other.
    """
    shared = shared_words(known, vectors)
    x, y = (np.stack([own[w] for w in shared]) for own in (vectors, known))
    regression = LinearRegression().fit(x, y)
    new = [word for word in vectors if word not in known]
    if not new:
        return {}
    found = regression.predict(np.stack([vectors[word] for word in new]))
    return dict(zip(new, np.float32(found), strict=True))


def shared_words(
    known: Collection[str], vectors: Mapping[str, np.ndarray]
) -> list[str]:
    """The words in both, from which `expand_vocabulary` learns."""
    shared = [word for word in vectors if word in known]
    size = len(next(iter(vectors.values()), ()))
    if len(shared) <= size:
        raise InputError(
            f"--word-vectors: {len(shared)} of the words that the model knows "
            f"have vectors; a regression from vectors of {size} numbers needs "
            f"at least {size + 1}"
        )
    return shared


def evaluate_verses(
    verses: sentence_tasks.Verses, encode: Encode
) -> dict[str, float]:
    """Finds verses in another version, and classifies their books."""
    texts = (verses.king_james, verses.world_english)
    ranks = alignment_ranks(*map(encode, texts))
    found = {f"r{k}": 100 * float(np.mean(ranks <= k)) for k in ranking.RECALLS}
    found["mean_rank"] = float(ranks.mean())
    regression = LogisticRegression(C=0.01, max_iter=1_000)
    classifier = make_pipeline(StandardScaler(), regression)
    own = (encode(verses.classified), verses.labels)
    right = cross_val_score(classifier, *own, cv=_folds(0))
    return found | {"book_accuracy": 100 * float(right.mean())}


def alignment_ranks(queries: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Ranks (N,) of the rows `found` that belong to the rows of `queries`.

    They use the cosine of vectors (N, U) minus their version's mean, which
    shows how the versions differ, not the verses.
    """
    queries, found = (x - x.mean(axis=0) for x in (queries, found))
    return ranking.image_ranks(cosine_similarity(queries, found))
