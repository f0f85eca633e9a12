"""Endless streams of batches that depend only on seed and step.

A killed run can therefore continue with exactly the batches that it would have
seen. The streams are `tf.data` pipelines, which `model.fit` accepts on every
Keras backend.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf


def endless(
    one_pass: Callable[[tf.Tensor], tf.data.Dataset],
    updates_per_pass: int,
    first_update: int,
) -> tf.data.Dataset:
    """Chains passes over the training data, starting at any update.

    Args:
        one_pass: from the number of a pass, an int64 scalar tensor, to the
            `updates_per_pass` elements of that pass.
        updates_per_pass: the length of every pass.
        first_update: the number of elements to skip at the start.
    """
    first, skipped = divmod(first_update, updates_per_pass)
    passes = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
    return passes.flat_map(one_pass).skip(skipped)


def shuffled(
    arrays: Sequence[np.ndarray], batch_size: int, seed: int, first_update: int
) -> tf.data.Dataset:
    """Batches of a new permutation of the examples in every pass.

    All batches have `batch_size` examples; a pass leaves out the rest, and the
    next pass shuffles again.
    """
    examples = len(arrays[0])
    updates = examples // batch_size
    tensors = [tf.constant(array) for array in arrays]

    def one_pass(number: tf.Tensor) -> tf.data.Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(examples), seed=tf.stack([tf.cast(seed, tf.int64), number])
        )
        batches = tf.reshape(order[: updates * batch_size], [updates, -1])
        return tf.data.Dataset.from_tensor_slices(batches)

    def gather(indices: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(tf.gather(tensor, indices) for tensor in tensors)

    # Only indices are skipped, which costs nothing.
    stream = endless(one_pass, updates, first_update)
    return stream.map(gather).prefetch(tf.data.AUTOTUNE)


def in_order(arrays: Sequence[np.ndarray], batch_size: int) -> tf.data.Dataset:
    """Batches of all examples once, for evaluation."""
    dataset = tf.data.Dataset.from_tensor_slices(tuple(arrays))
    return dataset.batch(batch_size).cache().prefetch(tf.data.AUTOTUNE)
