"""The inputs of a data set, batch by batch."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np


def batches(dataset: Any, batch_size: int | None) -> Iterator[Any]:
    """The inputs `x` of each batch, as NumPy arrays."""
    x = dataset[0] if isinstance(dataset, tuple) else dataset
    leaves = keras.tree.flatten(x)
    are_arrays = [
        hasattr(leaf, "shape") and hasattr(leaf, "__getitem__")
        for leaf in leaves
    ]
    if leaves and all(are_arrays):
        yield from _slices(x, 32 if batch_size is None else batch_size)
        return
    if batch_size is not None:
        raise ValueError(
            "Argument `batch_size` is for arrays. Received: "
            f"batch_size={batch_size} and a dataset of type "
            f"{type(dataset).__name__}, which already yields batches."
        )
    for batch in _iterate(dataset):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        yield keras.tree.map_structure(to_numpy, x)


def _slices(x: Any, batch_size: int) -> Iterator[Any]:
    x = keras.tree.map_structure(to_numpy, x)
    size = len(keras.tree.flatten(x)[0])
    for start in range(0, size, batch_size):
        rows = slice(start, start + batch_size)
        yield keras.tree.map_structure(lambda a, rows=rows: a[rows], x)


def _iterate(dataset: Any) -> Iterable[Any]:
    if isinstance(dataset, keras.utils.PyDataset):
        # The number of batches may be unknown; islice limits it then.
        number = dataset.num_batches
        indices = itertools.count() if number is None else range(number)
        return (dataset[index] for index in indices)
    if isinstance(dataset, Iterable) and not isinstance(dataset, str):
        return dataset
    raise TypeError(
        "Argument `dataset` must be arrays, a tf.data.Dataset, a PyDataset, "
        "a torch DataLoader, or an iterable of batches. "
        f"Received: {type(dataset).__name__}"
    )


def to_numpy(x: Any) -> np.ndarray:
    """The values of `x`, a tensor of any framework or an array."""
    if keras.ops.is_tensor(x) or isinstance(x, keras.Variable):
        return keras.ops.convert_to_numpy(x)
    return np.asarray(x)
