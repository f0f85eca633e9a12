"""Recall and ranks against a search that sorts, one query at a time."""

import numpy as np
import pytest
from common import ranking

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


def test_directions_are_told_apart():
    # One image attracts every caption: images are hard to find by captions,
    # but each image still prefers its own caption.
    scores = _scores(20, 4)
    scores[:, 0] += 100
    found = ranking.measures(scores)
    assert found["image_r1"] < 20 < found["caption_r1"]


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
