"""Sentences and images in one ordered space.

Vendrov et al., "Order-Embeddings of Images and Language" (2016), section 4.
Letters: B captions, each with its image, T words, D features of an image, U
units. A saved model needs only the classes that are registered here: once this
module is imported, `keras.saving.load_model` restores model, loss, metric and
optimizer.
"""

import functools
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

    It is zero if s, the more general of the two, is nowhere above i: from
    s (..., B, U) and i (..., C, U) to (..., B, C).
    """
    above = ops.relu(lower[..., :, None, :] - upper[..., None, :, :])
    return ops.sum(above * above, axis=-1)


def pair_scores(captions: Any, images: Any, similarity: str) -> Any:
    """Scores (B, C) of captions (B, U) and images (C, U); higher is better."""
    if similarity == "order":
        return -violations(captions, images)
    return captions @ ops.transpose(images)


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
        **kwargs: as for `keras.losses.Loss`; the paper uses the sum.
    """

    def __init__(
        self,
        similarity: str = "order",
        margin: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**{"reduction": "sum", **kwargs})
        self.similarity = similarity
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
        own = {"similarity": self.similarity, "margin": self.margin}
        return super().get_config() | own


@keras.saving.register_keras_serializable(package="keras_ln_examples")
def batch_recall(y_true: Any, y_pred: Any, similarity: str = "order") -> Any:
    """Whether captions score their image above others of the batch, (B,).

    Called like `ContrastiveLoss`. Equal scores do not count as right.
    """
    scores = pair_scores(y_pred[:, 0], y_pred[:, 1], similarity)
    own = ops.diagonal(scores)[:, None]
    return ops.all((scores < own) | _same_image(y_true), axis=1)


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
    how = {"mask_zero": True, "name": "embedding"}
    start = recurrent.words(word_scale)
    x = layers.Embedding(vocabulary, word_units, start, **how)(words)
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


def scores_of(
    captions: np.ndarray, images: np.ndarray, similarity: str, block: int = 100
) -> np.ndarray:
    """`pair_scores` of arrays, for `block` captions at a time."""
    images = ops.convert_to_tensor(images)
    blocks = (
        ops.convert_to_tensor(captions[i : i + block])
        for i in range(0, len(captions), block)
    )
    found = (pair_scores(block, images, similarity) for block in blocks)
    return np.concatenate([*map(ops.convert_to_numpy, found)])


def order_accuracy(captions: np.ndarray, each: int) -> float:
    """How often the more general of two captions is the lower one, in percent.

    Of `each` consecutive embeddings (N, U) each caption has more detail than
    the ones before. Right are pairs a before b with E(a, b) < E(b, a); equal
    values count half.
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

    Devices share a `batch` of captions.
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

    If captions are `growing`, each entails those before it, which adds
    `order_accuracy`.
    """
    sentences, images = embed(model, split)
    score = functools.partial(scores_of, similarity=similarity)
    found = ranking.fold_measures(sentences, images, score, fold)
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
