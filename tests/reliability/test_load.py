"""One seed, many threads, long trainings."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import randomize
from scripts import run_python

import keras_ln
from benchmarks import long_training

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


@pytest.mark.every_backend
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

    @pytest.mark.every_backend
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


@pytest.mark.every_backend
@pytest.mark.promise("10,000 training steps")
@pytest.mark.slow
def test_ten_thousand_steps_need_no_more_memory_and_one_trace():
    samples = long_training.train(steps=10_000, every=100)
    assert samples[-1]["step"] == 10_000
    assert long_training.growth(samples) < 10.0
    # torch traces nothing: it runs Python at every step.
    if keras.backend.backend() != "torch":
        assert len({sample["traces"] for sample in samples}) == 1


SWITCH = {
    "tensorflow": """
import tensorflow as tf
tf.config.experimental.enable_op_determinism()
""",
    "jax": "",
    "torch": """
import torch
torch.use_deterministic_algorithms(True)
""",
}
TRAIN = """
import sys
import keras, numpy as np
import keras_ln

def train(seed):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.Input((12, 16)),
        keras_ln.LNLSTM(
            32, dropout=0.2, recurrent_dropout=0.2, return_sequences=True
        ),
        keras_ln.LayerNormalization(),
        keras_ln.BNLSTM(32, max_steps=12),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(1),
    ])
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 12, 16)).astype("float32")
    y = rng.normal(size=(96, 1)).astype("float32")
    model.fit(x, y, batch_size=32, epochs=3, verbose=0)
    return [keras.ops.convert_to_numpy(w) for w in model.weights]

runs = [train(seed) for seed in (1, 1, 2)[: int(sys.argv[2])]]
np.savez(sys.argv[1], *[w for run in runs for w in run])
"""


@pytest.mark.promise("One seed")
@pytest.mark.slow
def test_one_seed_one_result(tmp_path):
    def run(name, models):
        threads = {"OMP_NUM_THREADS": "2", "TF_NUM_INTRAOP_THREADS": "2"}
        code, path = SWITCH[BACKEND] + TRAIN, tmp_path / name
        done = run_python("-c", code, path, models, **threads)
        assert done.returncode == 0, done.stderr
        arrays = list(np.load(path).values())
        size = len(arrays) // models
        return [arrays[k : k + size] for k in range(0, len(arrays), size)]

    first, again, other = run("one.npz", 3)
    (elsewhere,) = run("two.npz", 1)
    np.testing.assert_equal([again, elsewhere], [first, first])
    assert max(abs(a - b).max() for a, b in zip(first, other, strict=True)) > 0
