"""The CPU kernels in programs of JAX and of TensorFlow."""

import re
import subprocess
import sys
from pathlib import Path

import gpu_emulation
import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import BY_NAME
from layer_calls import made
from recurrence import Problem
from tolerances import FLOAT64

import keras_ln
from keras_ln import backend, ops

KERNELS = Path(__file__).parents[2] / "kernels"
x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "jax":
    import jax
    import jaxlib

    @pytest.mark.parametrize("name", ["Extension_Base", "InternalExtension"])
    def test_calls_from_xla_compile_with_headers_of_any_age(tmp_path, name):
        """A type was renamed in JAX 0.11."""
        folder = Path(jaxlib.__file__).parent / "include"
        header = Path("xla", "ffi", "api", "c_api.h")
        text, count = re.subn(
            r"XLA_FFI_(Extension_Base|InternalExtension)\b",
            f"XLA_FFI_{name}",
            (folder / header).read_text(),
        )
        assert count
        (tmp_path / header).parent.mkdir(parents=True)
        (tmp_path / header).write_text(text)
        command = gpu_emulation.emulated_module().compiler()
        command += ["-std=c++17", "-fsyntax-only", f"-I{tmp_path}"]
        sources = sorted((KERNELS / "src" / "xla").glob("*.cc"))
        subprocess.run([*command, *sources], check=True)

    @pytest.mark.promise(
        "`model.export`, `jax.export` or `tf.saved_model.save`"
    )
    @pytest.mark.parametrize(
        "name, known, platforms",
        [("LNGRU", True, None), ("LNLSTM", False, ["cpu", "cuda", "tpu"])],
    )
    def test_exports_hold_no_kernels(name, known, platforms, tmp_path):
        """Traced before or not, they run where there is no keras_ln."""
        problem = Problem(BY_NAME[name], {"return_sequences": True})
        layer = problem.layer()
        run = jax.jit(lambda x: layer(x, training=True))
        gradient = jax.jit(jax.grad(lambda x: (layer(x) ** 3).sum()))
        given = problem.x
        run(given)
        # The custom call is what runs here.
        assert "keras-ln-kernels" in run.lower(given).as_text()
        spec = given
        if not known:
            shape = jax.export.symbolic_shape(f"b, t, {given.shape[-1]}")
            spec = jax.ShapeDtypeStruct(shape, given.dtype)
        for k, function in enumerate((run, gradient)):
            exported = jax.export.export(function, platforms=platforms)(spec)
            written = exported.serialize(vjp_order=1 - k)
            (tmp_path / f"{k}.bin").write_bytes(written)
        np.save(tmp_path / "x.npy", given)
        expected = [run(given), gradient(given), gradient(given)]
        code = """
import sys
sys.modules["keras_ln"] = sys.modules["keras_ln_kernels"] = None
import jax, jax.export, numpy as np
x = np.load("x.npy")
run, gradient = (
    jax.export.deserialize(open(f"{k}.bin", "rb").read()).call for k in (0, 1)
)
again = jax.grad(lambda x: (run(x) ** 3).sum())
np.savez("found.npz", *(f(x) for f in (run, gradient, again)))
"""
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120
        )
        with np.load(tmp_path / "found.npz") as found:
            for a, b in zip(found.values(), expected, strict=True):
                np.testing.assert_allclose(a, b, **FLOAT64)

    def test_versions_that_do_not_tell_what_they_export(monkeypatch):
        monkeypatch.setattr(backend._native, "_EXPORTED", "no_such_field")
        backend._native._registered.cache_clear()
        chosen, reasons = ops.implementation(keras_ln.LNLSTM(3))
        backend._native._registered.cache_clear()
        assert chosen == "fused"
        assert "does not tell what it exports" in reasons["native"]

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU", "LNSimpleRNN"])
    def test_a_mapped_branch_that_was_not_taken(name):
        """Under `jax.vmap` both branches run, and the gradient of each.

        One gets zeros in the place of residuals, or those of the other branch
        if they are as large.
        """
        layer = made(getattr(keras_ln, name)(3))
        weights = [w.value for w in layer.trainable_variables]
        others = [w.value for w in layer.non_trainable_variables]
        mask = np.array([[True] * 4, [True, True, False, False]])

        def loss(weights, place, x):
            def run(x, **options):
                return layer.stateless_call(weights, others, x, **options)[0]

            branches = (
                lambda: run(x),
                lambda: run(x, mask=mask),
                lambda: run(x[:, :2]),
                lambda: x[:, 0],
            )
            return (jax.lax.switch(place, branches) ** 2).sum()

        gradient = jax.jit(jax.grad(loss, (0, 2)))
        places = jax.numpy.arange(4)
        xs = np.random.default_rng(0).normal(size=(4, 2, 4, 3))
        xs = xs.astype("float32")
        found = jax.jit(jax.vmap(gradient, (None, 0, 0)))(weights, places, xs)
        for i in range(4):
            right = gradient(weights, places[i], xs[i])
            for a, b in zip(*map(jax.tree.leaves, (found, right)), strict=True):
                np.testing.assert_allclose(a[i], b, rtol=1e-5, atol=1e-6)

    @pytest.mark.promise("a tensor does not fit a kernel's call")
    def test_buffers_that_do_not_fit():
        """What a wrong program would hand over is refused."""
        from keras_ln_kernels import xla
        from keras_ln_kernels.call import Call, options

        call = Call(
            *("simple_rnn", "float32"),
            ("x", "kernel", "recurrent_kernel"),
            ("final_h",),
            options(epsilon=1e-5),
        )
        shapes = {"x": (2, 4, 3), "kernel": (3, 5), "recurrent_kernel": (5, 5)}

        def run(units, changed=(), **more):
            arrays = [
                np.ones(s, "float32") for s in (shapes | dict(changed)).values()
            ]
            target = backend._native.native.TARGETS[False]
            result = jax.ShapeDtypeStruct((2, units), "float32")
            attributes = {
                name: np.int64(value)
                if isinstance(value, int)
                else np.float64(value)
                for name, value in xla.attributes(call).items()
            }
            for name, value in more.items():
                attributes[name] += value
            return jax.ffi.ffi_call(target, [result])(*arrays, **attributes)

        assert run(5)[0].shape == (2, 5)
        for units, changed in (
            (4, {}),
            (5, {"kernel": (3, 4)}),
            (5, {"x": (2, 4, 2)}),
            (5, {"recurrent_kernel": (5, 6)}),
        ):
            with pytest.raises(RuntimeError, match="INVALID_ARGUMENT"):
                run(units, changed)
        # More than 32 bits of it count.
        for more in (1, -3, 2**32):
            with pytest.raises(RuntimeError, match="cell: unknown"):
                run(5, cell=more)
        for name in ("go_backwards", "carry_normalized_state"):
            for more in (2, -1, 2**32):
                with pytest.raises(RuntimeError, match=f"{name}: must be 0"):
                    run(5, **{name: more})


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
            [sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120
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
