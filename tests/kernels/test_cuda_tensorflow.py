"""The kernels for GPUs on TensorFlow: programs for CUDA, scopes, faults.

Numbers come through XLA's client for CPUs, whose calls `gpu_emulation` gives a
stream.
"""

import gpu_emulation
import numpy as np
import pytest
from backend_gradients import BACKEND
from gpu_emulation import CLOSE, failing, launches, layer_of

from keras_ln import backend, ops

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "tensorflow":
    import tensorflow as tf

    from keras_ln.backend.tensorflow import gpu as gpu_tensorflow

    x = np.linspace(-1.0, 1.0, 16, dtype="float32").reshape(2, 4, 2)

    @pytest.fixture
    def for_cuda(driver, monkeypatch):
        """As on a GPU: what is registered for CUDA is the library's handler."""
        monkeypatch.setattr(gpu_tensorflow, "_PLATFORM", "CUDA")
        monkeypatch.setattr(backend, "gpu_reason", gpu_tensorflow.reason)

    def gradient_of(layer):
        def gradient(x, **options):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True, **options) ** 3)
            return tape.gradient(loss, x)

        return gradient

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU", "WNLSTM"])
    @pytest.mark.parametrize("sizes", [(2, 4), (None, None)])
    def test_programs_for_cuda(name, sizes, for_cuda):
        """Hold two launches, of dense arrays, whatever the sizes are."""
        layer = layer_of(name, return_sequences=True)
        assert ops.implementation(layer)[0] == "cuda"

        # Of a variable TensorFlow asks on which device it is.
        others = [tf.constant(v.numpy()) for v in layer.non_trainable_variables]

        def loss(x, weights, **options):
            return layer.stateless_call(weights, others, x, **options)[0]

        traced = tf.function(gradient_of(loss))
        of = [tf.TensorSpec(v.shape) for v in layer.trainable_variables]
        unknown = traced.get_concrete_function(
            tf.TensorSpec((*sizes, 2)), weights=of
        )
        run = tf.function(lambda *a: unknown(*a), jit_compile=True)
        lower = run.experimental_get_compiler_ir(tf.TensorSpec(x.shape), *of)
        lines = lower(stage="hlo", platform_name="GPU").splitlines()
        calls = [s for s in lines if "custom-call(" in s and "launch" in s]
        assert len(calls) == 2
        for line, kernel in zip(calls, (0, 2), strict=True):
            number = kernel + (name == "LNGRU")
            assert f"kernel = {number} : i64" in line
            assert "units = 3 : i64" in line and "format = 3 : i64" in line
            assert "operand_layout_constraints={f32[2,4," in line
            assert "{2,1,0}" in line and "{0,1}" not in line

    def test_a_program_for_cuda_on_a_cpu(for_cuda):
        """By a scope it has none; TensorFlow refuses it elsewhere."""
        layer = layer_of()
        with pytest.raises(tf.errors.NotFoundError, match="CUDA"):
            layer(x)
        with tf.device("/CPU:0"):
            layer(x)
            reason = ops.implementation(layer)[1]["cuda"]
        assert "The device scope is /job:localhost" in reason

        @tf.function
        def run(x):
            with tf.device("/CPU:0"):
                return layer(x)

        run(x)

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
    def test_unknown_sizes(name, monkeypatch):
        """One trace for all; blocks meet in memory of XLA's."""
        driver = gpu_emulation.use(monkeypatch, device=1)
        layer = layer_of(name, 40)
        plain = gradient_of(layer_of(name, 40, use_fused=False))
        spec = tf.TensorSpec((None, None, 2)), tf.TensorSpec((None, None))
        run = tf.function(
            lambda x, reset: gradient_of(layer)(x, reset=reset > 0), spec
        )
        rng = np.random.default_rng(0)
        for shape in ((2, 4), (9, 1), (0, 3)):
            given = rng.normal(size=(*shape, 2)).astype("float32")
            reset = rng.integers(0, 2, shape).astype("float32")
            expected = plain(tf.constant(given), reset=reset > 0)
            np.testing.assert_allclose(run(given, reset), expected, **CLOSE)
        assert run.experimental_get_tracing_count() == 1
        blocks = [line[0::3] for line in launches(driver)]
        assert blocks == [("grid", 2)] * 2 + [("grid", 4)] * 2
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="without steps"
        ):
            run(x[:, :0], x[:, :0, 0])
        within = tf.function(
            lambda x, reset: layer(x, reset=reset > 0), spec, jit_compile=True
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="other rows"):
            within(x, np.ones((3, 4), "float32"))

    def test_what_is_saved_holds_no_kernels(driver, tmp_path):
        layer, module = layer_of(), tf.Module()
        module.run = tf.function(layer, [tf.TensorSpec((None, 4, 2))])
        module.run(x)
        assert len(launches(driver)) == 1
        module.weights = [v.value for v in layer.weights]
        tf.saved_model.save(module, tmp_path / "saved")
        saved = (tmp_path / "saved/saved_model.pb").read_bytes()
        assert b"keras-ln-kernels" not in saved

    @pytest.mark.promise("no memory on the device")
    @pytest.mark.parametrize(
        "code, error, sentence",
        [
            (2, "ResourceExhaustedError", "out of memory"),
            (700, "InvalidArgumentError", "an illegal memory access was"),
        ],
    )
    def test_errors_of_the_driver(code, error, sentence, driver):
        layer = layer_of()
        layer(x)
        with failing(driver, "cuLaunchKernelEx", code):
            with pytest.raises(getattr(tf.errors, error), match=sentence):
                layer(x)

    def test_products_are_as_precise_as_tensorflow_s():
        switch = tf.config.experimental.enable_tensor_float_32_execution
        for enabled, format in ((False, "3xtf32"), (True, "tf32")):
            switch(enabled)
            assert gpu_tensorflow.format_of("float32") == format
            assert gpu_tensorflow.format_of("bfloat16") == "bfloat16"
