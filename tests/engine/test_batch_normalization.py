"""Batch statistics and their moving averages against the oracle."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from reference import norms
from tolerances import FLOAT64

from keras_ln.ops.norms.batch_normalization import (
    batch_statistics,
    update_moving_statistics,
    update_step_statistics,
)

BACKEND = keras.backend.backend()
B, T, F = 5, 4, 3


def tensor(x, dtype=None):
    return None if x is None else keras.ops.convert_to_tensor(x, dtype)


def example(seed=0):
    return 1.0 + 2.0 * np.random.default_rng(seed).normal(size=(B, T, F))


def test_two_passes_survive_a_large_mean():
    x = (1e4 + np.random.default_rng(2).normal(size=(512, 6))).astype("float32")
    _, variance = batch_statistics(tensor(x))
    right = x.astype("float64").var(0)
    # E[x^2] - E[x]^2 in float32 would be off by 1e8 * 6e-8 = 6.
    close(variance, right, rtol=1e-4)


@pytest.mark.every_backend
@pytest.mark.parametrize("masked", [False, True])
def test_equal_elements_have_no_variance(masked):
    """XLA's sum of them, in sequence, is off by 300 roundings."""
    x = np.random.default_rng(4).normal(size=6).astype("float32")
    rows = np.tile(x, (5000, 1))
    mask = np.ones((5000, 1), bool)
    if masked:
        mask[7] = False
        rows[7] = np.nan

    def statistics(rows, mask):
        return batch_statistics(rows, mask if masked else None)

    if BACKEND == "tensorflow":
        import tensorflow as tf

        statistics = tf.function(statistics, jit_compile=True)
    mean, variance = map(to_numpy, statistics(tensor(rows), tensor(mask)))
    close(mean, x, rtol=2.0**-23)
    assert (np.sqrt(variance) <= 16 * 2.0**-24 * abs(x)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_taken_in_float32(dtype):
    x = tensor(np.full((4096, 2), 40.0), dtype)
    mean, variance = batch_statistics(x)
    for value, right in ((mean, 40.0), (variance, 0.0)):
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        np.testing.assert_array_equal(to_numpy(value), right)


def moving(seed=8, steps=T):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(steps, F))
    return mean, rng.uniform(0.5, 2.0, size=(steps, F))


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1])
def test_entries_that_are_not_finite_stay_out(momentum, bad, which):
    old, batch = moving(), moving(9)
    batch[which][2, 1] = bad
    given = update_moving_statistics(
        *map(tensor, old), *map(tensor, batch), momentum
    )
    for value, before, new in zip(given, old, batch, strict=True):
        right = norms.moving_average(before, new, momentum)
        right[2, 1] = before[2, 1]
        close(value, right, **FLOAT64)


@pytest.mark.parametrize("steps", [3, T + 2])
def test_steps_that_are_not_there_stay(steps):
    old, batch = moving(), moving(9, steps)
    valid = np.arange(steps) % 2 == 0
    given = update_step_statistics(
        *map(tensor, (*old, *batch)), 0.75, tensor(valid)
    )
    for value, right, new in zip(given, old, batch, strict=True):
        for t in np.flatnonzero(valid[:T]):
            right[t] = norms.moving_average(right[t], new[t], 0.75)
        close(value, right, **FLOAT64)
