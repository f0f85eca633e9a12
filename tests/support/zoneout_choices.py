"""Layers with zoneout, and the choices that they draw or are given."""

import keras
import numpy as np
from descriptors import B, D, T, U

H, C = 0.3, 0.15


def shares(row):
    """Of h and, where there is one, of c."""
    names = ("zoneout", "cell_zoneout")[: row.state_count]
    return dict(zip(names, (H, C), strict=False))


def choices(row, shape=(B, T, U), seed=7):
    """Some for each state."""
    rng = np.random.default_rng(seed)
    return {name: rng.random(shape) < 0.4 for name in shares(row)}


def zoned(row, **arguments):
    """Arguments of a layer with zoneout."""
    return {**shares(row), "return_sequences": True, **arguments}


def drawn_by(layer, shape):
    """The choices of a layer's next call, which draws as this does."""
    cell = layer.cell
    # What keras.layers.RNN asks for before the loop.
    cell.get_dropout_mask(np.ones((shape[0], D)))
    cell.get_recurrent_dropout_mask(np.ones((shape[0], U)))
    made = cell.zoneouts((*shape[:2], U), training=True)
    cell.forget_dropout_masks()
    return {
        name: keras.ops.convert_to_numpy(value) for name, value in made.items()
    }
