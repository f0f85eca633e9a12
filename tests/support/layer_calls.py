"""One call of any layer or cell that has a row in descriptors.py."""

import keras
import numpy as np


def call(layer, row, x, **options):
    """The first output on x as an array."""
    if row.is_cell:
        options["states"] = [
            keras.ops.convert_to_tensor(state)
            for state in row.cell_states(np.random.default_rng(5))
        ]
    outputs = layer(x, **options)
    output = keras.tree.flatten(outputs)[0]
    return keras.ops.convert_to_numpy(output)


def example(row, seed=11):
    rng = np.random.default_rng(seed)
    return rng.normal(size=row.input_shape).astype("float32")
