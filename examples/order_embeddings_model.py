"""Sentences and images in one ordered space.

Vendrov et al., "Order-Embeddings of Images and Language" (2016), section 4.
Letters: B captions, each with its image, T words, D features of an image, U
units. A saved model needs only the classes that are registered here: once this
module is imported, `keras.saving.load_model` restores model, loss, metric and
optimizer.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from common import callbacks, ranking, recurrent
from common.datasets import captions
from keras import layers, ops

# The hinge's margin, by how pairs are scored.
MARGINS = {"order": 0.05, "cosine": 0.2}


def similarity_of(norm: str) -> str:
    """How a kind scores pairs, a key of `MARGINS`."""
    return "cosine" if norm == "symmetric" else "order"


def violations(lower: Any, upper: Any) -> Any:
    """E(s, i) = sum_u max(0, s_u - i_u)^2 of all pairs, eq. 2.

    It is zero if s, the more general of the two, is nowhere above i.

    Args:
        lower: s (..., B, U).
        upper: i (..., C, U).

    Returns:
        (..., B, C).
    """
    above = ops.relu(lower[..., :, None, :] - upper[..., None, :, :])
    return ops.sum(above * above, axis=-1)


def pair_scores(captions: Any, images: Any, similarity: str) -> Any:
    """Scores (B, C) of captions (B, U) and images (C, U); higher is better."""
    if similarity == "order":
        return -violations(captions, images)
    return captions @ ops.transpose(images)


def _check_similarity(similarity: str) -> str:
    if similarity not in MARGINS:
        raise ValueError(
            f"Argument `similarity` must be one of {[*MARGINS]}. Received: "
            f"similarity={similarity!r}"
        )
    return similarity


def _same_image(y_true: Any) -> Any:
    """Whether two rows of a batch have the same image (B, B)."""
    number = ops.reshape(y_true, (-1,))
    return number[:, None] == number[None, :]


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class ContrastiveLoss(keras.losses.Loss):
    """The hinge loss of all wrong pairs in a batch, both ways, eq. 4.

    With the score f(c, i), the margin a and the pairs (c, i) of a batch:

        sum_(c,i) [ sum_(i' != i) max(0, a - f(c, i) + f(c, i'))
                  + sum_(i' != i) max(0, a - f(c, i) + f(c', i)) ]

    with c' the caption of i'. Call arguments: y_true (B), the numbers of the
    images, because other captions of the same image are not wrong; y_pred
    (B, 2, U), caption and image.

    Args:
        similarity: "order" for f = -E, "cosine" for the scalar product.
        margin: a; None for the value in `MARGINS`.
        reduction: as in `keras.losses.Loss`; the paper uses the sum.
        name: the loss's name.
        dtype: the dtype of the computation.
    """

    def __init__(
        self,
        similarity: str = "order",
        margin: float | None = None,
        reduction: str = "sum",
        name: str = "contrastive_loss",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.similarity = _check_similarity(similarity)
        self.margin = MARGINS[similarity] if margin is None else margin

    def call(self, y_true, y_pred):
        """The loss (B) of every pair."""
        scores = pair_scores(y_pred[:, 0], y_pred[:, 1], self.similarity)
        own = ops.diagonal(scores)
        wrong_image = ops.relu(self.margin - own[:, None] + scores)
        wrong_caption = ops.relu(
            self.margin - own[:, None] + ops.transpose(scores)
        )
        costs = wrong_image + wrong_caption
        costs = ops.where(_same_image(y_true), ops.zeros_like(costs), costs)
        return ops.sum(costs, axis=1)

    def get_config(self):
        """Every argument of the constructor."""
        return {
            **super().get_config(),
            "similarity": self.similarity,
            "margin": self.margin,
        }


@keras.saving.register_keras_serializable(package="keras_ln_examples")
class BatchRecall(keras.metrics.Mean):
    """The share of captions that score their image above others of the batch.

    Called like `ContrastiveLoss`.

    Args:
        similarity: "order" or "cosine".
        name: the metric's name.
        dtype: the dtype of the result.
    """

    def __init__(
        self,
        similarity: str = "order",
        name: str = "batch_recall",
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.similarity = _check_similarity(similarity)

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch."""
        scores = pair_scores(y_pred[:, 0], y_pred[:, 1], self.similarity)
        own = ops.diagonal(scores)[:, None]
        # Equal scores do not count as right.
        found = ops.all((scores < own) | _same_image(y_true), axis=1)
        super().update_state(found, sample_weight)

    def get_config(self):
        """Every argument of the constructor."""
        return {**super().get_config(), "similarity": self.similarity}


def build_model(
    norm: str = "layer",
    units: int = 1024,
    vocabulary: int = 10_000,
    steps: int = 31,
    features: int = 4096,
    word_units: int = 300,
    gain: float | None = None,
    word_scale: float = 1.0,
) -> keras.Model:
    """Builds both encoders: (words, features) to (2, units).

    Args besides the flags of `order_embeddings.py`:
        vocabulary: the words, with padding, end mark and unknown.
        steps: the words of the longest caption, with the end mark.
        features: the number of features of an image.
    """
    uniform = recurrent.uniform()
    words = keras.Input((steps,), dtype="int32", name="words")
    pictures = keras.Input((features,), name="features")
    x = layers.Embedding(
        vocabulary,
        word_units,
        embeddings_initializer=recurrent.words(word_scale),
        mask_zero=True,
        name="embedding",
    )(words)
    gru = recurrent.gru(norm, units, gain, name="sentence_encoder")
    sentence = gru(x)
    recurrent.make_orthogonal(gru)
    image = layers.Dense(
        units, kernel_initializer=uniform, name="image_encoder"
    )(pictures)
    both = ops.stack([sentence, image], axis=1)
    # In float32, also if the layers compute in half precision.
    both = layers.UnitNormalization(dtype="float32", name="unit")(both)
    if similarity_of(norm) == "order":
        both = ops.abs(both)
    return keras.Model([words, pictures], both)


def scorer(
    similarity: str, block: int = 100
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """`pair_scores` of arrays, for `block` captions at a time."""

    def score(captions, images):
        images = ops.convert_to_tensor(images)
        return np.concatenate(
            [
                ops.convert_to_numpy(
                    pair_scores(
                        ops.convert_to_tensor(captions[i : i + block]),
                        images,
                        similarity,
                    )
                )
                for i in range(0, len(captions), block)
            ]
        )

    return score


def order_accuracy(captions: np.ndarray, each: int) -> float:
    """How often the more general of two captions is the lower one.

    Args:
        captions: embeddings (K N, U), of growing detail within K.
        each: K.

    Returns:
        Of all pairs of captions a before b of an image, the share in percent
        with E(a, b) < E(b, a). Equal values count half.
    """
    groups = captions.reshape(-1, each, captions.shape[1])
    found = ops.convert_to_numpy(violations(groups, groups))  # (N, K, K)
    shorter, longer = np.triu_indices(each, 1)
    right, wrong = found[:, shorter, longer], found[:, longer, shorter]
    return 100 * float(np.mean((right < wrong) + 0.5 * (right == wrong)))


def embed(
    model: keras.Model, split: captions.Split, batch: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """The embeddings of captions (5 N, U) and images (N, U) of a split.

    Args:
        model: of `build_model`.
        split: captions and images.
        batch: the captions at a time; devices share them.
    """
    count = len(split.words)
    # Whole batches, in which the last ones are seen again.
    rows = np.arange(-(-count // batch) * batch) % count
    inputs = [split.words[rows], split.features[rows // captions.EACH]]
    # Not compiled, so that it needs no loss.
    both = keras.Model(model.inputs, model.output).predict(
        inputs, batch_size=batch, verbose=0
    )[:count]
    return both[:, 0], both[:: captions.EACH, 1]


def search(
    model: keras.Model,
    split: captions.Split,
    similarity: str,
    fold: int,
    growing: bool,
) -> dict[str, float]:
    """Measures of searches among the images of every fold of a split.

    Args:
        model: of `build_model`.
        split: captions and images.
        similarity: "order" or "cosine".
        fold: the number of images to search.
        growing: whether every caption entails the captions before it, which
            adds `order_accuracy`.
    """
    sentences, images = embed(model, split)
    found = ranking.fold_measures(sentences, images, scorer(similarity), fold)
    if growing:
        found["order_accuracy"] = order_accuracy(sentences, captions.EACH)
    return found


class Validation(callbacks.Measured):
    """Adds the measures of `search` among validation images to the logs.

    Attributes:
        best_recall_sum: the greatest sum of recalls so far.
    """

    def __init__(self, *how: Any):
        super().__init__(lambda model: search(model, *how))
        self.best_recall_sum = 0.0

    def found(self) -> dict[str, float]:
        found = super().found()
        total = found["recall_sum"] = ranking.recall_sum(found)
        self.best_recall_sum = max(self.best_recall_sum, total)
        return found | {"best_recall_sum": self.best_recall_sum}
