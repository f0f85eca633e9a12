"""Small models with batch statistics, and what these should be.

Letters: T time, F features.
"""

import keras
import numpy as np
from arrays import close, to_numpy
from reference import norms
from tolerances import FLOAT32_VALUES

import keras_ln

T, F = 4, 3


def example(batch=20, *, steps=None, seed=1):
    rng = np.random.default_rng(seed)
    shape = (batch, F) if steps is None else (batch, steps, F)
    return (1.0 + 2.0 * rng.normal(size=shape)).astype("float32")


def randomized(layer, shape=None, seed=0):
    if shape is not None:
        layer.build(shape)
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(rng.uniform(0.5, 2.0, size=tuple(weight.shape)))
    return layer


def copies(variables):
    return [np.array(to_numpy(v)) for v in variables]


def moving(layer):
    return copies([layer.moving_mean, layer.moving_variance])


def average(batches, **options):
    """Plain averages of the batch means and of the batch variances."""
    pairs = [
        norms.batch_statistics(x.astype("float64"), **options) for x in batches
    ]
    return [np.mean(values, 0) for values in zip(*pairs, strict=True)]


def check(layer, expected):
    close(
        (layer.moving_mean, layer.moving_variance), expected, **FLOAT32_VALUES
    )


def simple(layer=None):
    layer = keras_ln.BatchNormalization() if layer is None else layer
    model = keras.Sequential([keras.Input((F,)), layer, keras.layers.Dense(2)])
    return randomized(model), layer


def batches_of(x):
    return [x[:8], x[8:16], x[16:]]
