"""The network of section 6.3, and what measures vectors of sentences."""

import keras
import numpy as np
import pytest
import skip_thoughts as script
import skip_thoughts_model as parts
from arrays import to_numpy
from common import sentence_evaluation as evaluation
from common.datasets import plain_text, sentence_tasks
from common.errors import InputError
from descriptors import named_weights
from reference.ln_gru import gru
from scipy import optimize, spatial, special, stats

UNITS, WORD_UNITS, LENGTH = 5, 4, 3
WORDS = (*plain_text.MARKS, "a", "rose", "is", ".")


def _model(norm="layer", **kwargs):
    """A small model with random weights."""
    options = {
        "units": UNITS,
        "word_units": WORD_UNITS,
        "vocabulary": len(WORDS) - len(plain_text.MARKS),
        "length": LENGTH,
    } | kwargs
    model = parts.build_model(norm, **options)
    random = np.random.default_rng(7)
    for weight in model.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return model


def _triples(count=6, steps=LENGTH, seed=3):
    random = np.random.default_rng(seed)

    def sentences(width):
        rows = random.integers(1, len(WORDS), (count, width))
        lengths = random.integers(1, width + 1, (count, 1))
        return np.where(np.arange(width) < lengths, rows, 0).astype("int32")

    before, after = sentences(LENGTH + 1), sentences(LENGTH + 1)
    current = random.integers(1, len(WORDS), (count, steps)).astype("int32")
    shifted = [np.pad(x[:, :-1], ((0, 0), (1, 0))) for x in (before, after)]
    targets = np.concatenate([before, after], axis=1)
    return [current, *shifted], targets, np.float32(targets != 0)


def _weights(model, layer):
    return [np.float64(w) for w in model.get_layer(layer).get_weights()]


def _gru(model, layer, x, h, norm):
    """Hidden states (T, U) of one sequence, from h."""
    weights = named_weights(model.get_layer(layer))
    sites = ("kernel", "recurrent") if norm == "layer" else ()
    return gru(weights, x[None], [h[None]], normalize=sites)[0][0]


def _logits(model, inputs, norm):
    (table,) = _weights(model, "word_vectors")
    kernel, bias = _weights(model, "output")
    found = []
    for current, before, after in zip(*inputs, strict=True):
        steps = table[current[current != 0]]
        start = np.zeros(UNITS)
        thought = _gru(model, "encoder", steps, start, norm)[-1]
        hidden = []
        for name, words in (("before", before), ("after", after)):
            decoder = f"decoder_{name}"
            hidden += [*_gru(model, decoder, table[words], thought, norm)]
        found.append([h @ kernel + bias for h in hidden])
    return np.array(found)


@pytest.mark.parametrize("norm", script.KINDS)
def test_logits(norm):
    model = _model(norm)
    inputs, _, _ = _triples()
    found = to_numpy(model(inputs))
    assert found.shape == (6, 2 * LENGTH + 2, len(WORDS))
    expected = _logits(model, inputs, norm)
    # Float32 over seven steps of gates.
    np.testing.assert_allclose(found, expected, atol=2e-5)
    # All inputs matter: the sentence to every word, the words to later ones.
    for place in range(3):
        changed = [x.copy() for x in inputs]
        changed[place][:, -2] = changed[place][:, -2] % 6 + 1
        other = to_numpy(model(changed))
        differs = np.abs(other - found).max(axis=2) > 1e-4
        assert differs.any()
        if place:
            mine = slice((place - 1) * 4, place * 4)
            # The words before the change, and the other sentence, do not.
            assert not differs[:, mine][:, : LENGTH - 1].any()
            differs[:, mine] = False
            assert not differs.any()


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_matrix_of_every_gate_is_orthogonal(norm):
    model = parts.build_model(norm, 7, 5, 20, 3)
    for name in ("encoder", "decoder_before", "decoder_after"):
        kernel = model.get_layer(name).cell.recurrent_kernel
        for gate in np.split(to_numpy(kernel), 3, axis=1):
            np.testing.assert_allclose(gate.T @ gate, np.eye(7), atol=1e-5)


def _nll(logits, targets):
    """Nats per word and their number, over all but padding."""
    total = count = 0
    for row, words in zip(logits, targets, strict=True):
        for scores, word in zip(row, words, strict=True):
            if word:
                total += np.log(np.exp(scores).sum()) - scores[word]
                count += 1
    return total, count


@pytest.mark.full
def test_loss_leaves_out_padding():
    model = _model()
    logits = {"from_logits": True}
    loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum", **logits)
    nll = keras.metrics.SparseCategoricalCrossentropy("nll", **logits)
    model.compile(loss=loss, weighted_metrics=[nll])
    inputs, targets, weights = _triples()
    total, count = _nll(_logits(model, inputs, "layer"), targets)
    assert 0 < count < targets.size  # There is padding.
    found = model.evaluate(
        inputs, targets, sample_weight=weights, verbose=0, return_dict=True
    )
    # The loss is the sum over a batch, as in the authors' code.
    assert found["loss"] == pytest.approx(total, rel=1e-5)
    assert found["nll"] == pytest.approx(total / count, rel=1e-5)


def test_vectors_of_sentences():
    model = _model()
    encode = parts.SentenceEncoder(model, WORDS)
    sentences = ["A rose.", "is", "a rose is a rose is a rose is a thorn"]
    found = encode(sentences)
    assert found.shape == (3, UNITS) and found.dtype == np.float32
    numbers = [[3, 4, 6, 1], [5, 1], [3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 2, 1]]
    (table,) = _weights(model, "word_vectors")
    for vector, own in zip(found, numbers, strict=True):
        start = np.zeros(UNITS)
        expected = _gru(model, "encoder", table[own], start, "layer")[-1]
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    # More than a batch, in any order.
    many = (sentences * 50)[::-1]
    np.testing.assert_allclose(encode(many), np.tile(found[::-1], (50, 1)))
    # Further words, with vectors of their own.
    table = np.concatenate([table, [np.full(WORD_UNITS, 0.3)]], dtype="float32")
    wider = parts.SentenceEncoder(model, (*WORDS, "thorn"), table)(sentences)
    np.testing.assert_array_equal(wider[:2], found[:2])
    assert np.abs(wider[2] - found[2]).max() > 0.01


def _lookup(vectors):
    return lambda sentences: np.stack([vectors[s] for s in sentences])


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
    of = _lookup(vectors)
    both = [(of(pairs.first), of(pairs.second)) for pairs in sick]
    features = [np.hstack([abs(u - v), u * v]) for u, v in both]
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
