"""The CPU extension on TensorFlow: exports, unknown sizes, what is missing."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from layer_calls import made

import keras_ln
from keras_ln import backend, ops

x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "tensorflow":
    import tensorflow as tf

    @pytest.mark.promise(
        "`model.export`, `jax.export` or `tf.saved_model.save`"
    )
    def test_exports_hold_no_kernels(tmp_path):
        """Other than functions that were traced to run here."""
        model = keras.Sequential([keras.Input((None, 3)), keras_ln.LNLSTM(3)])
        model.export(tmp_path / "exported", verbose=False)
        saved = (tmp_path / "exported/saved_model.pb").read_bytes()
        assert b"keras-ln-kernels" not in saved

        module = tf.Module()
        spec = tf.TensorSpec((None, None, 3))
        module.weights = [v.value for v in model.weights]
        module.run = tf.function(model, input_signature=[spec])
        # Saving traces it anew.
        module.run(x)
        tf.saved_model.save(module, tmp_path / "function")
        saved = (tmp_path / "function/saved_model.pb").read_bytes()
        assert b"keras-ln-kernels" not in saved
        for calls_it in (module.run, lambda x: module.run(x) + 1):
            wrapped = tf.function(calls_it, input_signature=[spec])
            concrete = tf.Module()
            concrete.weights = module.weights
            concrete.run = wrapped.get_concrete_function()
            with pytest.raises(
                ValueError, match="inside of keras_ln.ops.portable"
            ):
                tf.saved_model.save(concrete, tmp_path / "concrete")

        @tf.function(input_signature=[spec])
        def branch(x):
            return tf.cond(tf.size(x) > 0, lambda: model(x), lambda: x[:, 0])

        module.run = branch.get_concrete_function()
        tf.saved_model.save(module, tmp_path / "branch")
        code = """
import sys, tensorflow as tf
loaded = tf.saved_model.load("function")
assert loaded.run(tf.ones((2, 4, 3))).shape == (2, 3)
loaded = tf.saved_model.load("branch")
try:
    loaded.run(tf.ones((2, 4, 3)))
except tf.errors.NotFoundError as error:
    assert "export inside of keras_ln.ops.portable()" in str(error), error
else:
    raise SystemExit("it ran")
"""
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            check=True,
            timeout=120,
        )

    def test_unknown_sizes(calls):
        """One trace for all batches and lengths, forwards and backwards."""
        layer = made(keras_ln.LNGRU(3, return_sequences=True))
        traces = []

        @tf.function(input_signature=[tf.TensorSpec((None, None, 3))])
        def run(x):
            traces.append(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True)
                loss = tf.reduce_sum(y**2)
            return y, tape.gradient(loss, x)

        rng = np.random.default_rng(0)
        for shape in ((2, 4, 3), (5, 1, 3), (1, 9, 3), (0, 3, 3)):
            given = rng.normal(size=shape).astype("float32")
            y, gradient = run(given)
            assert y.shape == gradient.shape == shape
            expected = layer(given)
            np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)
        assert len(traces) == 1 and calls

    @pytest.mark.promise("a tensor does not fit a kernel's call")
    @pytest.mark.parametrize("argument", ["mask", "reset", "initial_state"])
    def test_an_array_of_another_shape_when_the_program_runs(argument):
        layer = made(keras_ln.LNGRU(3))
        sizes = tf.TensorSpec((None, None, 3)), tf.TensorSpec((None, None))
        last = 3 if argument == "initial_state" else 4

        def run(rows, **options):
            run = tf.function(
                lambda x, a: layer(x, **{argument: a}), sizes, **options
            )
            return run(x, np.ones((rows, last), "float32"))

        message = (
            rf"LNGRU: all arrays .* stateful=True .* sequences\] \[2 4 3\].*"
            rf"\[{argument}( h)?\] \[3 {last}\]"
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(3)
        if argument == "reset":  # XLA drops assertions, and a kernel tells.
            message = r"starts: .*\(2, 4\).* Received: shape \(3, 4\)"
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                run(3, jit_compile=True)
        assert run(2).shape == (2, 3)

    def test_a_last_batch_of_fewer_rows():
        layers = [keras.Input(batch_shape=(2, 4, 3))]
        model = keras.Sequential([*layers, keras_ln.LNLSTM(3, stateful=True)])
        message = (
            r"LNLSTM: .* With stateful=True .*\[1 4 3\].*state h\] \[2 3\]"
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            model.predict(np.ones((3, 4, 3)), batch_size=2, verbose=0)

    def test_kernels_that_tensorflow_cannot_call(monkeypatch):
        name = "tensorflow.no_such_module"
        monkeypatch.setattr(backend._native, "_CALL_MODULE", name)
        backend._native._registered.cache_clear()
        chosen, reasons = ops.implementation(keras_ln.LNLSTM(3))
        backend._native._registered.cache_clear()
        assert chosen == "fused"
        assert "has no custom calls of XLA" in reasons["native"]
