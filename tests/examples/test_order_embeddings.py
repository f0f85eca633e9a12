"""Order embeddings and recall against their oracles."""

import keras
import numpy as np
import order_embeddings as script
import order_embeddings_model as parts
import pytest
from arrays import to_numpy
from common import ranking
from descriptors import named_weights, randomize
from reference.ln_gru import gru
from tolerances import FLOAT32_VALUES

BATCH, UNITS, STEPS, WORDS, FEATURES = 6, 5, 7, 11, 4


def _violation(lower, upper):
    """E of two vectors, one unit after the other."""
    return sum(max(0.0, s - i) ** 2 for s, i in zip(lower, upper, strict=True))


def _score(caption, image, similarity):
    if similarity == "order":
        return -_violation(caption, image)
    return sum(s * i for s, i in zip(caption, image, strict=True))


def _embeddings(seed, rows=BATCH):
    both = np.random.default_rng(seed).normal(size=(rows, 2, UNITS))
    both = np.abs(both) / np.linalg.norm(both, axis=-1, keepdims=True)
    return both.astype("float32")


def test_the_order_violation():
    both = _embeddings(0)
    found = to_numpy(parts.violations(both[:, 0], both[:4, 1]))
    expected = [[_violation(s, i) for i in both[:4, 1]] for s in both[:, 0]]
    np.testing.assert_allclose(found, expected, **FLOAT32_VALUES)
    # Only a caption above its image violates the order.
    lower, upper = np.float32([[0.1, 0.2]]), np.float32([[0.1, 0.9]])
    assert to_numpy(parts.violations(lower, upper)).item() == 0
    assert to_numpy(parts.violations(upper, lower)).item() == pytest.approx(
        0.49
    )


@pytest.mark.parametrize("similarity", parts.MARGINS)
@pytest.mark.parametrize("margin", [None, 0.7])
def test_the_loss_of_all_wrong_pairs(similarity, margin):
    both = _embeddings(1)
    # Two captions of one image are not wrong for it.
    numbers = [3, 8, 3, 1, 0, 7]
    a = {"order": 0.05, "cosine": 0.2}[similarity] if margin is None else margin
    expected = np.zeros(BATCH)
    for k in range(BATCH):
        own = _score(both[k, 0], both[k, 1], similarity)
        for other in range(BATCH):
            if numbers[k] != numbers[other]:
                image = _score(both[k, 0], both[other, 1], similarity)
                caption = _score(both[other, 0], both[k, 1], similarity)
                expected[k] += max(0, a - own + image)
                expected[k] += max(0, a - own + caption)
    loss = parts.ContrastiveLoss(similarity, margin)
    tensors = map(keras.ops.convert_to_tensor, (np.float32(numbers), both))
    found = to_numpy(loss.call(*tensors))
    np.testing.assert_allclose(found, expected, **FLOAT32_VALUES)
    assert (expected > 0).any()
    # Summed over the batch, whatever the shape of the numbers.
    for labels in (np.int64(numbers), np.int64(numbers)[:, None]):
        total = loss(labels, keras.ops.convert_to_tensor(both))
        assert float(total) == pytest.approx(expected.sum(), rel=1e-5)


def test_a_pair_alone_has_no_loss():
    assert float(parts.ContrastiveLoss()([4], _embeddings(2, rows=1))) == 0


@pytest.mark.parametrize("similarity", parts.MARGINS)
def test_the_recall_of_a_batch(similarity):
    metric = keras.metrics.MeanMetricWrapper(
        parts.batch_recall, similarity=similarity
    )
    hits = []
    for seed in range(5):
        both = _embeddings(seed)
        both[:, 1] += 2 * both[:, 0]
        numbers = np.random.default_rng(seed).integers(5, size=BATCH)
        for k in range(BATCH):
            own = _score(both[k, 0], both[k, 1], similarity)
            others = [
                _score(both[k, 0], both[n, 1], similarity)
                for n in range(BATCH)
                if numbers[n] != numbers[k]
            ]
            hits.append(own > max(others))
        metric.update_state(numbers, keras.ops.convert_to_tensor(both))
    assert 0 < sum(hits) < len(hits)
    assert float(metric.result()) == pytest.approx(np.mean(hits))
    # Equal scores are no merit.
    metric.reset_state()
    metric.update_state(np.arange(3), keras.ops.ones((3, 2, UNITS)))
    assert float(metric.result()) == 0


def test_the_loss_comes_back():
    found = parts.ContrastiveLoss("cosine", name="other")
    config = keras.saving.serialize_keras_object(found)
    assert config["registered_name"].startswith("keras_ln_examples>")
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == found.get_config()
    assert again.similarity == "cosine" and again.name == "other"


def test_order_accuracy():
    random = np.random.default_rng(3)
    captions = np.abs(random.normal(size=(4 * 5, UNITS))).astype("float32")
    captions[1] = captions[0]
    hits = []
    for start in range(0, 20, 5):
        for a in range(start, start + 5):
            for b in range(a + 1, start + 5):
                right = _violation(captions[a], captions[b])
                wrong = _violation(captions[b], captions[a])
                hits.append(0.5 if right == wrong else float(right < wrong))
    assert hits[0] == 0.5 and 0 < np.mean(hits) < 1
    found = parts.order_accuracy(captions, 5)
    assert found == pytest.approx(100 * np.mean(hits))
    # The more general lies below.
    grown = np.cumsum(np.ones((5, UNITS), "float32"), axis=0)
    assert parts.order_accuracy(grown, 5) == 100
    assert parts.order_accuracy(grown[::-1], 5) == 0


@pytest.mark.parametrize("similarity", parts.MARGINS)
def test_scores_in_blocks(similarity):
    both = _embeddings(4, rows=23)
    found = parts.scores_of(both[:, 0], both[:9, 1], similarity, block=7)
    expected = [
        [_score(s, i, similarity) for i in both[:9, 1]] for s in both[:, 0]
    ]
    np.testing.assert_allclose(found, expected, **FLOAT32_VALUES)


def _inputs():
    random = np.random.default_rng(6)
    words = random.integers(3, WORDS, size=(BATCH, STEPS)).astype("int32")
    for row, length in zip(words, (7, 5, 1, 6, 3, 2), strict=True):
        row[length - 1] = 1
        row[length:] = 0
    return words, random.normal(size=(BATCH, FEATURES)).astype("float32")


def _forward(weights, words, features, norm):
    """The network, one caption at a time and none of its padding."""
    of_gru = {
        name.removeprefix("sentence_encoder/"): value
        for name, value in weights.items()
    }
    sites = ("kernel", "recurrent") if norm == "layer" else ()
    rows = []
    for line, picture in zip(words, features, strict=True):
        x = weights["embedding/embeddings"][line[: np.count_nonzero(line)]]
        _, (h,) = gru(of_gru, x[None], [np.zeros((1, UNITS))], normalize=sites)
        image = picture @ weights["image_encoder/kernel"]
        image = image + weights["image_encoder/bias"]
        pair = np.stack([h[0], image])
        pair /= np.sqrt((pair**2).sum(axis=1, keepdims=True))
        rows.append(pair if norm == "symmetric" else abs(pair))
    return np.array(rows)


@pytest.mark.parametrize("norm", script.KINDS)
def test_the_network(norm):
    model = randomize(parts.build_model(norm, UNITS, WORDS, STEPS, FEATURES, 3))
    words, features = _inputs()
    weights = {
        f"{layer.name}/{name}": value
        for layer in model.layers
        for name, value in named_weights(layer).items()
    }
    found = to_numpy(model([words, features]))
    expected = _forward(weights, words, features, norm)
    np.testing.assert_allclose(found, expected, **FLOAT32_VALUES)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, rtol=1e-5)
    # The oracle would notice any weight.
    for key, value in weights.items():
        noise = np.random.default_rng(7).normal(size=value.shape)
        other = _forward(
            weights | {key: value + 0.1 * noise}, words, features, norm
        )
        assert np.abs(other - expected).max() > 1e-3, key


def test_initial_weights():
    model = parts.build_model("layer", 40, WORDS, STEPS, 300, 30, gain=0.3)
    cell = model.get_layer("sentence_encoder").cell
    words = to_numpy(model.get_layer("embedding").embeddings)
    assert words.std() == pytest.approx(1.0, rel=0.1)
    for weight in (model.get_layer("image_encoder").kernel, cell.kernel):
        value = to_numpy(weight)
        assert np.abs(value).max() <= 0.1
        assert value.std() == pytest.approx(0.2 / np.sqrt(12), rel=0.1)
    squares = np.split(to_numpy(cell.recurrent_kernel), 3, axis=1)
    for square in squares:
        np.testing.assert_allclose(square @ square.T, np.eye(40), atol=1e-5)
    assert np.abs(squares[0] - squares[1]).max() > 0.1
    np.testing.assert_array_equal(to_numpy(cell.kernel_gamma), np.float32(0.3))
    plain = parts.build_model("none", 4, WORDS, STEPS, 3, 2)
    assert plain.get_layer("sentence_encoder").cell.bias is not None


EACH = 5


def _by_sorting(scores):
    """All measures, from the order in which a search would show things."""
    own = np.repeat(np.eye(scores.shape[1]), EACH, axis=0)

    def ranks(scores, right):
        shown = np.take_along_axis(right, np.argsort(-scores), axis=1)
        return 1 + shown.argmax(axis=1)

    found = {}
    for name, of in {
        "caption": ranks(scores.T, own.T),
        "image": ranks(scores, own),
    }.items():
        for k in (1, 5, 10):
            found[f"{name}_r{k}"] = 100 * np.mean(of <= k)
        found[f"{name}_median_rank"] = np.floor(np.median(of))
        found[f"{name}_mean_rank"] = of.mean()
    return found


def _scores(images, seed):
    # The right image is somewhat better than chance.
    random = np.random.default_rng(seed)
    right = np.repeat(np.eye(images), EACH, axis=0)
    return random.normal(size=(EACH * images, images)) + 1.5 * right


@pytest.mark.parametrize(("images", "seed"), [(1, 0), (2, 1), (40, 2), (41, 3)])
def test_all_measures(images, seed):
    scores = _scores(images, seed)
    found = ranking.measures(scores)
    assert found == pytest.approx(_by_sorting(scores), rel=1e-12)
    assert ranking.recall_sum(found) == pytest.approx(
        found["image_r1"] + found["image_r5"] + found["image_r10"]
    )


def test_equal_scores_are_no_merit():
    found = ranking.measures(np.zeros((15, 3)))
    assert found["image_mean_rank"] == 3
    # All captions of the two other images come first.
    assert found["caption_mean_rank"] == 11
    assert found["image_r1"] == found["caption_r1"] == 0
    not_numbers = ranking.measures(np.full((15, 3), np.nan))
    assert not_numbers["image_r1"] == not_numbers["caption_r1"] == 0


def _product(captions, images):
    return captions @ images.T


@pytest.mark.parametrize(("images", "fold", "folds"), [(23, 4, 5), (9, 4, 2)])
def test_folds_are_searched_alone_and_averaged(images, fold, folds):
    random = np.random.default_rng(5)
    captions = random.normal(size=(EACH * images, 7))
    pictures = random.normal(size=(images, 7))
    found = ranking.fold_measures(captions, pictures, _product, fold)
    parts = [
        _by_sorting(
            captions[EACH * n * fold : EACH * (n + 1) * fold]
            @ pictures[n * fold : (n + 1) * fold].T
        )
        for n in range(folds)
    ]
    expected = {k: np.mean([part[k] for part in parts]) for k in parts[0]}
    assert found == pytest.approx(expected, rel=1e-12)
    whole = ranking.fold_measures(captions, pictures, _product, images)
    assert whole["image_mean_rank"] > found["image_mean_rank"]
