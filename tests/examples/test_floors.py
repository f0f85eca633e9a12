"""Chance and baselines, against what is known or counted."""

import functools
import importlib

import everyday
import keras
import numpy as np
import pytest
import scripts
import tune
from common import baselines, cli, ranking, single, training
from common.datasets import captions, cloze, strokes
from scipy import stats

PACKAGED = tuple(f"everyday-{task}" for task in everyday.PACKAGED)


@pytest.mark.parametrize("name", (*tune.EXPERIMENTS, *PACKAGED))
def test_floors_are_measured_as_the_results_are(name, monkeypatch, packaged):
    monkeypatch.setattr(captions, "SMALL_COUNTS", (300, 40, 120))
    plan = scripts.plan(cli.find(name), "--smoke")
    experiment = cli.find(name).for_flags(plan)
    data = experiment.load_data(plan)
    known = {*experiment.columns.values()}
    floors = {**experiment.floors(plan, data)}
    with training.environment(plan):
        floors["untrained"] = experiment.untrained(plan, data)
    assert len(floors) > 1
    for metrics in floors.values():
        assert known.intersection(metrics)
        assert all(map(np.isfinite, metrics.values()))
        assert 0 <= metrics.get("test_error", 0) <= 100
        assert metrics.get("test_loss", 0) >= 0
    if name in PACKAGED:
        chance = floors["chance"]["test_loss"]
        # Which may be worse, for persons whom it does not know.
        others = floors.keys() - {"logistic regression", "untrained"}
        for other in others:
            assert floors[other].get("test_loss", 0) <= chance + 1e-6
    title = experiment.describe(plan, data)
    assert "None" not in title and len(title) < 160
    held_out = data.held_out()
    experiment.check(plan, held_out)
    assert single.crc32(held_out) != single.crc32(data)


def test_logistic_regression_learns_what_is_linear():
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 2, 3))
    y = np.int32(x[:, 0, 0] > 0) + 3
    found = baselines.of_classes((x[:500], y[:500]), (x[500:], y[500:]))
    chance, regression = found.values()
    assert chance == {
        "test_nll": pytest.approx(np.log(2)),
        "test_error_percent": 50,
    }
    assert [*found][1] == "logistic regression of 500"
    assert regression["test_error_percent"] < 5
    assert regression["test_nll"] < 0.15
    wrong = baselines.of_classes((x[:500], y[:500]), (x[500:], 7 - y[500:]))
    assert [*wrong.values()][1]["test_error_percent"] > 95


def test_classes_that_training_lacks():
    """An answer is right by its class, not by its place among the seen ones."""
    x = np.array([[-1.0], [-1.1], [1.0], [1.1]])
    known = (x, np.array([0, 0, 2, 2]))
    for unseen in (1, 9):
        found = baselines.of_classes(known, (x, np.array([0, 0, unseen, 2])))
        assert found["chance"]["test_error_percent"] == pytest.approx(200 / 3)
        # Whose NLL is infinite.
        assert found["logistic regression of 4"] == {"test_error_percent": 25}
    assert [*baselines.of_classes((x, np.zeros(4)), known)] == ["chance"]


def test_words_are_counted():
    words = np.array([[3, 3, 1, 0], [9, 4, 4, 4]])
    assert baselines.count_words(words, 5).tolist() == [
        [1, 1, 0, 2, 0],
        [0, 0, 0, 0, 3],
    ]


def _captions(images, informative):
    """Captions that say which features an image has, or anything."""
    random = np.random.default_rng(0)
    has = random.random((images, 8)) < 0.5
    said = has if informative else random.random((images, 8)) < 0.5
    words = np.where(said, 3 + np.arange(8), 0)
    features = np.float32(has) + 0.01 * random.normal(size=has.shape)
    return captions.Split(np.repeat(words, 5, axis=0), np.float32(features))


def test_a_bag_of_words_finds_what_words_say():
    for informative in (True, False):
        train = _captions(400, informative)
        data = captions.Captions(train, train, train, 11 * ("",), False)
        tested = train.first(200)
        found = baselines.of_captions(data, tested, fold=100)
        chance, bag = found["chance"], found["bag of words"]
        # Of 100 images: 1, 5 and 10 % of them, in the middle on average.
        assert chance["image_mean_rank"] == pytest.approx(50.5, abs=4)
        assert chance["image_r10"] == pytest.approx(10, abs=4)
        # The best of 5 captions, among 500.
        assert chance["caption_mean_rank"] == pytest.approx(83.5, abs=20)
        assert (bag["image_r10"] > 80) == informative
        assert (
            bag.keys()
            == chance.keys()
            == ranking.measures(np.eye(2).repeat(5, axis=0)).keys()
        )


def test_one_gaussian_is_the_density_of_one(monkeypatch):
    task = cli.find("handwriting_generation")
    random = np.random.default_rng(0)
    cov = [[2.0, 0.6], [0.6, 0.5]]
    points = np.zeros((40, 50, 3), np.float32)
    points[..., :2] = random.multivariate_normal([1, -1], cov, (40, 50))
    points[..., 2] = random.random((40, 50)) < 0.1
    valid = np.float32(random.random((40, 50)) < 0.8)
    part = strokes.Strokes(points, valid, np.zeros((40, 1)))
    found = task.floors(None, strokes.Handwriting(part, part))
    # The entropy of the density, which is what the mean comes to.
    entropy = stats.multivariate_normal([1, -1], cov).entropy()
    entropy += stats.bernoulli(0.1).entropy()
    assert found["one Gaussian"]["test_nll"] == pytest.approx(entropy, abs=0.1)


def test_the_mean_image_has_the_entropy_of_its_pixels():
    task = cli.find("draw_mnist")
    black = np.float32([[0.1, 0.5], [0.9, 0.0]])
    images = np.float32(np.random.default_rng(0).random((4000, 2, 2)) < black)
    from common.datasets import binarized_mnist

    found = task.floors(None, binarized_mnist.Images(images, images))
    entropy = sum(stats.bernoulli(float(p)).entropy() for p in black.flat)
    nats = found["mean image"]["test_bound_nats"]
    assert nats == pytest.approx(entropy, abs=0.05)
    assert found["chance"]["test_bound_nats"] == pytest.approx(4 * np.log(2))


def test_names_are_guessed():
    task = cli.find("attentive_reader")
    passages = np.array([[3, 3, 4, 9], [4, 5, 9, 9], [5, 5, 5, 3]])
    questions = cloze.Questions(passages, passages, np.array([3, 5, 3]))
    data = cloze.Cloze(questions, questions, 3, [])
    found = task.floors(None, data)
    # One of two each; the most frequent ones, or one of two of them.
    assert found["chance"]["validation_error_percent"] == pytest.approx(50)
    assert found["most frequent name"]["validation_error_percent"] == (
        pytest.approx(100 * (1 - (1 + 0.5 + 0) / 3))
    )


@pytest.mark.parametrize("factor", [None, 3.0])
def test_scale_is_that_of_the_matrices_of_inputs(factor):
    build = importlib.import_module("sequential_mnist_model").build_model
    model = functools.partial(build, "none", units=3, steps=4)()
    before = {w.path: w.numpy() for w in model.weights}
    training.scale_matrices(model, factor)
    for weight in model.weights:
        expected = before[weight.path]
        if factor and weight.name == "kernel":
            expected = factor * expected
        np.testing.assert_allclose(weight.numpy(), expected)
    if factor:
        assert [w.name for w in model.weights].count("kernel") == 2


def test_scale_reaches_weight_normalised_matrices():
    build = importlib.import_module("draw_mnist_model").build_model
    model = build("weight", 3, 4, 4, 2, 2, 2, 2)
    cell = model.get_layer("draw").cell.encoder

    def matrices():
        names = ("kernel", "recurrent_kernel")
        return [
            keras.ops.convert_to_numpy(cell.tensors()[name]) for name in names
        ]

    before = matrices()
    training.scale_matrices(model, 2.0)
    after = matrices()
    np.testing.assert_allclose(after[0], 2 * before[0], rtol=1e-5)
    np.testing.assert_allclose(after[1], before[1], rtol=1e-5)
