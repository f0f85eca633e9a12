"""What vectors of sentences are measured with, against oracles."""

import keras
import numpy as np
import pytest
from common import callbacks
from common import sentence_evaluation as evaluation
from common.datasets import plain_text, sentence_tasks
from common.errors import InputError
from scipy import optimize, spatial, special, stats
from sklearn import linear_model, model_selection


def _lookup(vectors):
    return lambda sentences: np.stack([vectors[s] for s in sentences])


def test_pair_features():
    u, v = np.random.default_rng(1).normal(size=(2, 5, 3))
    found = evaluation.pair_features(u, v)
    for row, a, b in zip(found, u, v, strict=True):
        expected = [abs(x - y) for x, y in zip(a, b, strict=True)]
        expected += [x * y for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(row, expected, rtol=1e-15)


def test_spread_scores():
    scores = np.array([1, 1.25, 2, 2.885, 3.5, 4.9, 5])
    expected = np.zeros((len(scores), 5))
    for row, score in zip(expected, scores, strict=True):
        for i in range(1, 6):
            if i == np.floor(score) + 1:
                row[i - 1] = score - np.floor(score)
            if i == np.floor(score):
                row[i - 1] = np.floor(score) - score + 1
    found = evaluation.spread(scores)
    np.testing.assert_allclose(found, expected, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(found @ np.arange(1, 6), scores, rtol=1e-15)


def _cross_entropy(weights, features, targets, penalty):
    """What a softmax regression minimises, with soft targets."""
    weights = weights.reshape(5, -1)
    logits = features @ weights[:, :-1].T + weights[:, -1]
    losses = -targets * special.log_softmax(logits, axis=1)
    return penalty * losses.sum() + (weights[:, :-1] ** 2).sum() / 2


def test_softmax_learns_spread_targets():
    random = np.random.default_rng(2)
    features = random.normal(size=(60, 3))
    scores = np.clip(3 + features @ [0.8, -0.5, 0.2], 1, 5)
    scores[:2] = 1, 5
    targets = evaluation.spread(scores)
    best = optimize.minimize(
        _cross_entropy, np.zeros(20), (features, targets, 0.5), tol=1e-10
    ).x.reshape(5, 4)
    logits = features @ best[:, :-1].T + best[:, -1]
    expected = special.softmax(logits, axis=1) @ np.arange(1, 6)
    model = evaluation.SpreadRegression(penalty=0.5).fit(features, scores)
    # Both stop when the gradient is small: sklearn at 1e-4 of it.
    np.testing.assert_allclose(model.predict(features), expected, atol=2e-3)
    # Rounded scores, the nearest mistake, end elsewhere.
    rounded = evaluation.SpreadRegression(0.5).fit(features, scores.round())
    assert np.abs(rounded.predict(features) - expected).max() > 0.05


def _pairs(count, random, vectors, noise):
    names = [f"s{len(vectors) + i}" for i in range(2 * count)]
    for name in names:
        vectors[name] = random.normal(size=4)
    first, second = names[:count], names[count:]
    distance = [
        np.abs(vectors[a] - vectors[b]).mean()
        for a, b in zip(first, second, strict=True)
    ]
    scores = 5 - 2 * np.array(distance) + noise * random.normal(size=count)
    return sentence_tasks.Pairs(first, second, np.clip(scores, 1, 5))


def test_relatedness():
    random, vectors = np.random.default_rng(3), {}
    sick = sentence_tasks.Sick(
        *(_pairs(n, random, vectors, noise=0.3) for n in (200, 50, 80))
    )
    found = evaluation.relatedness(sick, _lookup(vectors))
    # One regression per penalty, the best of which on the trial pairs counts.
    features = [
        evaluation.pair_features(
            _lookup(vectors)(pairs.first), _lookup(vectors)(pairs.second)
        )
        for pairs in sick
    ]
    results = []
    for exponent in range(9):
        model = evaluation.SpreadRegression(2**exponent)
        model.fit(features[0], sick.train.scores)
        trial, test = map(model.predict, features[1:])
        results.append((np.corrcoef(trial, sick.trial.scores)[0, 1], test))
    predicted = max(results, key=lambda result: result[0])[1]
    actual = sick.test.scores
    assert found == pytest.approx(
        {
            "pearson": stats.pearsonr(predicted, actual)[0],
            "spearman": stats.spearmanr(predicted, actual)[0],
            "mse": ((predicted - actual) ** 2).mean(),
        }
    )
    assert found["pearson"] > 0.7
    # Vectors that know nothing of the pairs predict nothing.
    blind = {name: random.normal(size=4) for name in vectors}
    assert evaluation.relatedness(sick, _lookup(blind))["pearson"] < 0.4


def test_nested_cross_validation(monkeypatch):
    # In one process, whose start is most of the time.
    monkeypatch.setattr(evaluation, "PROCESSES", 1)
    monkeypatch.setattr(evaluation, "PENALTIES", np.array([1e-4, 1.0]))
    random = np.random.default_rng(4)
    labels = np.arange(90) % 3 % 2
    vectors = random.normal(size=(90, 5)) + labels[:, None]
    scores = []
    split = model_selection.StratifiedKFold(10, shuffle=True, random_state=0)
    inner = model_selection.StratifiedKFold(10, shuffle=True, random_state=1)

    def accuracy(penalty, train, test):
        model = linear_model.LogisticRegression(C=penalty, solver="liblinear")
        model.fit(vectors[train], labels[train])
        return np.mean(model.predict(vectors[test]) == labels[test])

    for train, test in split.split(vectors, labels):
        means = []
        for penalty in (1e-4, 1.0):
            own = [
                accuracy(penalty, train[a], train[b])
                for a, b in inner.split(vectors[train], labels[train])
            ]
            means.append((np.mean(own), penalty))
        best = max(means, key=lambda pair: pair[0])[1]
        scores.append(accuracy(best, train, test))
    found = evaluation.nested_accuracy(vectors, labels)
    assert found == pytest.approx(100 * np.mean(scores))
    assert 80 < found < 100


def test_expanded_vocabulary():
    random = np.random.default_rng(5)
    weights, shift = random.normal(size=(3, 6)), random.normal(size=6)
    vectors = {f"w{n}": random.normal(size=3) for n in range(20)}
    known = {
        name: vector @ weights + shift + 0.1 * random.normal(size=6)
        for name, vector in [*vectors.items()][:12]
    }
    known["without a vector"] = random.normal(size=6)
    found = evaluation.expand_vocabulary(known, vectors)
    assert [*found] == [f"w{n}" for n in range(12, 20)]
    x = np.stack([[*vectors[f"w{n}"], 1] for n in range(12)])
    y = np.stack([known[f"w{n}"] for n in range(12)])
    solution = np.linalg.lstsq(x, y, rcond=None)[0]
    for name, vector in found.items():
        expected = [*vectors[name], 1] @ solution
        np.testing.assert_allclose(vector, expected, rtol=1e-5, atol=1e-6)
        assert vector.dtype == np.float32
    # Nothing is new.
    few = {name: vectors[name] for name in known if name in vectors}
    assert evaluation.expand_vocabulary(known, few) == {}
    with pytest.raises(InputError, match="3 of the words that the model know"):
        evaluation.expand_vocabulary(
            {f"w{n}": np.zeros(6) for n in range(3)}, vectors
        )


def test_alignment_ranks():
    random = np.random.default_rng(6)
    one = random.normal(size=(30, 4)).astype("float32")
    two = one + np.float32(0.5 * random.normal(size=one.shape)) + 7
    found = evaluation.alignment_ranks(one, two)
    cosines = 1 - spatial.distance.cdist(
        one - one.mean(axis=0), two - two.mean(axis=0), "cosine"
    )
    expected = (cosines >= np.diag(cosines)[:, None]).sum(axis=1)
    assert found.tolist() == expected.tolist()
    assert 1 < np.mean(expected) < 10
    # Vectors that are all alike are no merit.
    alike = np.ones((5, 3), np.float32)
    assert evaluation.alignment_ranks(alike, alike).tolist() == 5 * [5]


def test_verses_of_the_bible():
    verses = sentence_tasks.bible_verses()
    assert len(set(verses.king_james)) > 990
    assert len(verses.world_english) == len(verses.king_james) == 1000
    words = [[set(text.lower().split()) for text in own] for own in verses[:2]]
    same = np.mean([len(a & b) for a, b in zip(*words, strict=True)])
    other = np.mean(
        [len(a & b) for a, b in zip(words[0], words[1][1:], strict=False)]
    )
    assert same > 2 * other
    assert np.bincount(verses.labels).tolist() == 10 * [100]
    psalms = [t for t, b in zip(*verses[2:], strict=True) if b == 0]
    assert sum("LORD" in text for text in psalms) > 20
    few = verses.every(10)
    assert few.king_james == verses.king_james[::10]
    assert np.bincount(few.labels).tolist() == 10 * [10]


def test_verses_are_found_by_their_words():
    verses = sentence_tasks.bible_verses().every(2)
    random = np.random.default_rng(7)
    # Sorted, since the order of a set differs from process to process.
    words = sorted(evaluation.words_of(verses))
    table = {w: random.normal(size=64) for w in words}

    def encode(sentences):
        return np.stack(
            [sum(table[w] for w in plain_text.tokens(s)) for s in sentences]
        )

    found = evaluation.evaluate({"verses": verses}, encode)
    assert [*found] == [
        f"verses_{name}"
        for name in ("r1", "r5", "r10", "mean_rank", "book_accuracy")
    ]
    assert found["verses_r1"] > 80 and found["verses_mean_rank"] < 5
    assert found["verses_r1"] <= found["verses_r5"] <= found["verses_r10"]
    ranks = evaluation.alignment_ranks(
        encode(verses.king_james), encode(verses.world_english)
    )
    assert found["verses_r1"] == pytest.approx(100 * np.mean(ranks == 1))
    assert found["verses_book_accuracy"] > 20  # By chance 10.
    noise = evaluation.evaluate(
        {"verses": verses}, lambda s: random.normal(size=(len(s), 8))
    )
    assert noise["verses_r10"] < 30 and noise["verses_mean_rank"] > 35


def test_measures_stand_in_the_logs():
    model, logs = keras.Sequential(), {"loss": 1.0}
    callback = callbacks.Measured(lambda own: {"same": own is model})
    callback.set_model(model)
    callback.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "val_same": True}
