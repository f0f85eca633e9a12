"""Threads that share a model, and long trainings."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import randomize

import keras_ln
from benchmarks import long_training

pytestmark = pytest.mark.every_backend

THREADS = 8


def model_of(units):
    """An op over features and a loop over time."""
    model = keras.Sequential(
        [
            keras.Input((5, 3)),
            keras_ln.LayerNormalization(),
            keras_ln.LNLSTM(units),
        ]
    )
    return randomize(model)


def values(model, x):
    return keras.ops.convert_to_numpy(model(x, training=False))


@pytest.mark.promise("Eight threads")
def test_eight_threads_see_what_one_sees():
    # Units that no other test has: the threads also trace, all at once.
    model = model_of(units=6)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(2, 5, 3)).astype("float32") for _ in range(16)]
    barrier = threading.Barrier(THREADS)

    def work(number):
        order = np.random.default_rng(number).permutation(len(inputs))
        barrier.wait()
        return [(k, values(model, inputs[k])) for k in order]

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        results = [r for part in pool.map(work, range(THREADS)) for r in part]
    assert len(results) == THREADS * len(inputs)
    right = [values(model, x) for x in inputs]
    assert abs(right[0] - right[1]).max() > 1e-3
    for k, found in results:
        np.testing.assert_array_equal(found, right[k])


if BACKEND == "tensorflow":

    def penalty_of(layer):
        import tensorflow as tf

        def gradients(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    loss = tf.reduce_sum(layer(x, training=True) ** 2)
                penalty = tf.reduce_sum(inner.gradient(loss, x) ** 2)
            return outer.gradient(penalty, x)

        return tf, gradients, tf.random.stateless_normal((2, 4, 3), (0, 1))

    def test_four_threads_trace_second_derivatives_of_one_layer():
        """Two of them for XLA."""
        tf, gradients, x = penalty_of(keras_ln.LNSimpleRNN(5))
        right = gradients(x)
        barrier = threading.Barrier(4)

        def work(number):
            program = tf.function(gradients, jit_compile=bool(number % 2))
            barrier.wait()
            return program(x)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for found in pool.map(work, range(4)):
                close(found, right, rtol=1e-3, atol=1e-4)


@pytest.mark.promise("10,000 training steps")
@pytest.mark.slow
def test_ten_thousand_steps_need_no_more_memory_and_one_trace():
    samples = long_training.train(steps=10_000, every=100)
    assert samples[-1]["step"] == 10_000
    assert long_training.growth(samples) < 10.0
    # torch traces nothing: it runs Python at every step.
    if keras.backend.backend() != "torch":
        assert len({sample["traces"] for sample in samples}) == 1
