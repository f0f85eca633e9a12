"""Retrieval of images by captions and of captions by images.

Letters: N images, K captions of each, of which image n has the rows
K n to K n + K - 1. Scores (K N, N) are greater for a better match. Ranks start
at 1, and ties count against the right answer.
"""

from collections.abc import Callable

import numpy as np

RECALLS = (1, 5, 10)
FOLDS = 5


def image_ranks(scores: np.ndarray) -> np.ndarray:
    """The rank (K N) of every caption's image among all images."""
    count = scores.shape[1]
    images = np.repeat(np.arange(count), len(scores) // count)
    own = np.take_along_axis(scores, images[:, None], axis=1)
    # Comparisons with NaN are false, so that NaN ranks before the answer.
    return np.count_nonzero(~(scores < own), axis=1)


def caption_ranks(scores: np.ndarray) -> np.ndarray:
    """The rank (N) of every image's best caption among all others."""
    count = scores.shape[1]
    index = np.arange(count)
    own = scores.reshape(count, -1, count)[index, :, index]  # (N, K)
    best = own.max(axis=1)
    before = np.count_nonzero(~(scores < best), axis=0)
    return before - np.count_nonzero(~(own < best[:, None]), axis=1) + 1


def measures(scores: np.ndarray) -> dict[str, float]:
    """Recall among the first 1, 5 and 10 in percent, median and mean rank."""
    found = {}
    for name, ranks in (
        ("caption", caption_ranks(scores)),
        ("image", image_ranks(scores)),
    ):
        for k in RECALLS:
            found[f"{name}_r{k}"] = 100 * float(np.mean(ranks <= k))
        found[f"{name}_median_rank"] = float(np.floor(np.median(ranks)))
        found[f"{name}_mean_rank"] = float(np.mean(ranks))
    return found


def recall_sum(found: dict[str, float]) -> float:
    """R@1 + R@5 + R@10 of images, the criterion for the best model."""
    return sum(found[f"image_r{k}"] for k in RECALLS)


def fold_measures(
    captions: np.ndarray,
    images: np.ndarray,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
    fold: int,
) -> dict[str, float]:
    """The means of `measures` over folds, each searched separately."""
    each = len(captions) // len(images)
    count = min(FOLDS, len(images) // fold)
    found = []
    for start in range(0, count * fold, fold):
        stop = start + fold
        scores = score(captions[each * start : each * stop], images[start:stop])
        found.append(measures(scores))
    return {k: float(np.mean([one[k] for one in found])) for k in found[0]}
