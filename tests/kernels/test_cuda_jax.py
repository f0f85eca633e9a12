"""The GPU kernels on JAX: programs for CUDA, transformations, faults.

Numbers come through XLA's client for CPUs, whose calls `gpu_emulation` gives a
stream.
"""

import os
from pathlib import Path

import gpu_emulation
import numpy as np
import pytest
from backend_gradients import BACKEND
from gpu_emulation import CLOSE, failing, launches, layer_of
from scripts import run_python

from keras_ln import backend, ops

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "jax":
    import jax

    from keras_ln.backend import gpu
    from keras_ln.backend.jax import gpu as gpu_jax

    x = np.linspace(-1.0, 1.0, 16, dtype="float32").reshape(2, 4, 2)

    @pytest.fixture
    def for_cuda(monkeypatch):
        """As on a GPU: what is registered for CUDA is the library's handler."""
        with monkeypatch.context() as patch:
            custom_vjp, reason = backend.custom_vjp, backend.gpu_reason
            gpu_emulation.use(patch)
            patch.setattr(backend, "custom_vjp", custom_vjp)
            patch.setattr(backend, "gpu_reason", reason)
            yield

    def loss_of(layer):
        def loss(x):
            return (layer(x, training=True) ** 3).sum()

        return loss

    def lowered(function, platform):
        traced = jax.jit(function).trace(x)
        return traced.lower(lowering_platforms=(platform,)).as_text()

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU", "WNLSTM"])
    def test_programs_for_cuda(name, for_cuda):
        """Hold two launches; those for other platforms none."""
        layer = layer_of(name, return_sequences=True)
        assert ops.implementation(layer)[0] == "cuda"
        function = jax.grad(loss_of(layer))
        text = lowered(function, "cuda")
        calls = [
            line
            for line in text.splitlines()
            if "custom_call @" in line and "keras-ln-kernels" in line
        ]
        assert len(calls) == 2
        for line, kernel in zip(calls, (0, 2), strict=True):
            number = kernel + (name == "LNGRU")
            assert f"kernel = {number} : i64" in line
            assert "units = 3 : i64" in line and "format = 3 : i64" in line
            assert "epsilon = 1.000000e-05 : f64" in line
            gates = 9 if name == "LNGRU" else 12
            assert f"(tensor<2x4x{gates}xf32>" in line
            # Dense and row-major, all of them.
            assert "dense<[2, 1, 0]> : tensor<3xindex>" in line
            assert "dense<[0, 1]>" not in line
        for other in ("cpu", "tpu"):
            assert "keras-ln-kernels" not in lowered(function, other)

    def test_exports_hold_no_kernels(for_cuda):
        layer = layer_of()
        for platforms in (["cuda"], ["cuda", "cpu"]):
            exported = jax.export.export(
                jax.jit(layer.__call__), platforms=platforms
            )(x)
            assert "keras-ln-kernels" not in exported.mlir_module()

    def test_launches(driver):
        """One forward and one backward, on XLA's stream."""
        layer = layer_of()
        jax.block_until_ready(jax.jit(layer.__call__)(x))
        assert len(launches(driver)) == 1
        jax.block_until_ready(jax.jit(jax.grad(loss_of(layer)))(x))
        found = launches(driver)
        assert [line[:3] for line in found] == [
            ("cluster", gpu_emulation.STREAM, 0)
        ] * 3
        assert driver.fake.fake_contexts() == 0

    def test_the_second_gpu(monkeypatch):
        """Of another kind: its blocks meet in memory of XLA's."""
        driver = gpu_emulation.use(monkeypatch, device=1)
        for name in ("LNLSTM", "LNGRU"):
            found = jax.jit(jax.grad(loss_of(layer_of(name, 40))))(x)
            plain = layer_of(name, 40, use_fused=False)
            expected = jax.grad(loss_of(plain))(x)
            np.testing.assert_allclose(found, expected, **CLOSE)
        assert {line[:3] for line in launches(driver)} == {
            ("grid", gpu_emulation.STREAM, 1)
        }

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
    def test_more_rows_than_run_at_once(name, driver):
        """In eights: groups of 16 rows, of one block each."""
        rows = np.sin(np.arange(65 * 2 * 2, dtype="float32")).reshape(65, 2, 2)
        found = jax.jit(jax.grad(loss_of(layer_of(name))))(rows)
        expected = jax.grad(loss_of(layer_of(name, use_fused=False)))(rows)
        np.testing.assert_allclose(found, expected, **CLOSE)
        assert [line[3] for line in launches(driver)] == [5, 5]

    def test_gpus_that_differ(driver, monkeypatch):
        monkeypatch.setattr(gpu_jax, "_devices", lambda: (0, 1))
        reason = gpu_jax.plan_reason(x, "lstm", 40, "float32", True)
        assert reason == ("A program is for all GPUs, and these GPUs differ.")

    def test_a_kernel_for_more_rows_that_does_not_load(driver, monkeypatch):
        """Likewise."""
        rows = np.sin(np.arange(65 * 2 * 2, dtype="float32")).reshape(65, 2, 2)
        gpu_emulation.forget(driver, monkeypatch, rows=16)
        layer = layer_of()
        jax.block_until_ready(jax.jit(layer.__call__)(rows[:7]))
        with failing(driver, "cuLibraryLoadData", 209):
            with pytest.warns(UserWarning, match="no kernel image"):
                found = jax.block_until_ready(jax.jit(layer.__call__)(rows))
        assert [line[3] for line in launches(driver)] == [1, 9]
        plain = layer_of(use_fused=False)
        np.testing.assert_allclose(found, plain(rows), **CLOSE)

    def test_two_gpus(driver):
        """Halves of a batch, by jax.shard_map and by XLA's partitioner."""
        flags = "--xla_force_host_platform_device_count=2"
        # The emulation is slow, and one device waits for the other's.
        flags += " --xla_cpu_collective_call_terminate_timeout_seconds=280"
        script = Path(gpu_emulation.__file__).with_name("two_gpus.py")
        flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
        done = run_python(script, driver.library, XLA_FLAGS=flags)
        assert done.returncode == 0, done.stderr

    def test_transformations(driver):
        """vmap, of which each row is a launch; a gradient of a gradient."""
        layer, plain = layer_of(), layer_of(use_fused=False)
        rows = np.stack([x, 2.0 * x, -x])
        gradient = jax.grad(loss_of(layer))
        found = jax.block_until_ready(jax.jit(jax.vmap(gradient))(rows))
        assert len(launches(driver)) == 6
        expected = np.stack([gradient(row) for row in rows])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

        def second(layer):
            gradient = jax.grad(loss_of(layer))
            return jax.grad(lambda x: (gradient(x) ** 2).sum())(x)

        np.testing.assert_allclose(second(layer), second(plain), **CLOSE)
        with pytest.raises(TypeError, match="has no forward-mode derivatives"):
            jax.jvp(layer, (x,), (x,))

    def test_products_are_as_precise_as_jax_s():
        for asked, format in (
            (None, "tf32"),
            ("default", "tf32"),
            ("tensorfloat32", "tf32"),
            ("highest", "3xtf32"),
            ("float32", "3xtf32"),
        ):
            with jax.default_matmul_precision(asked):
                assert gpu_jax.format_of("float32") == format
                assert gpu_jax.format_of("bfloat16") == "bfloat16"

    @pytest.mark.promise("no memory on the device")
    @pytest.mark.parametrize(
        "function, code, sentence",
        [
            ("cuLaunchKernelEx", 2, "RESOURCE_EXHAUSTED: out of memory"),
            ("cuLaunchKernelEx", 700, "an illegal memory access was"),
        ],
    )
    def test_errors_of_the_driver(function, code, sentence, driver):
        run = jax.jit(layer_of().__call__)
        jax.block_until_ready(run(x))
        with failing(driver, function, code):
            with pytest.raises(jax.errors.JaxRuntimeError, match=sentence):
                jax.block_until_ready(run(x))

    def test_a_program_whose_kernel_is_not_here(driver):
        """As one that another process compiled, of another GPU's plan."""
        from keras_ln_kernels import gpu_plan, xla
        from keras_ln_kernels.gpu_call import GpuCall

        results = ("final_h", "final_c")
        takes = ("zx", "recurrent")
        call = GpuCall("lstm", False, "float32", takes, results, (1e-5, False))
        plan = gpu_plan.planned("lstm", False, 7, 1, 5, "tf32", True)
        gpu_emulation._stand_in()
        shapes = [jax.ShapeDtypeStruct((2, 7), "float32")] * 2
        run = jax.ffi.ffi_call(gpu.TARGET, shapes)
        attributes = {
            name: (np.float64 if isinstance(value, float) else np.int64)(value)
            for name, value in xla.gpu_attributes(call, plan).items()
        }
        arrays = [np.zeros(s, "float32") for s in ((2, 4, 28), (7, 28))]
        with pytest.raises(
            jax.errors.JaxRuntimeError, match="trace it in this"
        ):
            jax.block_until_ready(run(*arrays, **attributes))
        for array, sentence in ((8, "is missing"), (2, "other rows")):
            attributes["given"] |= 1 << array
            with pytest.raises(jax.errors.JaxRuntimeError, match=sentence):
                jax.block_until_ready(run(*arrays, **attributes))

    def test_on_a_cpu(monkeypatch):
        """Where nothing is replaced: the switch alone does no harm."""
        monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
        layer = layer_of()
        reason = ops.implementation(layer)[1]["cuda"]
        assert reason == "JAX runs on cpu: the GPU kernels need CUDA."
        layer(x)
