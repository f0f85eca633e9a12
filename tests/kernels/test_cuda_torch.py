"""The GPU kernels on torch: streams, devices, operators, faults."""

import ctypes

import gpu_emulation
import keras
import pytest
from backend_gradients import BACKEND
from descriptors import BY_NAME
from gpu_emulation import CLOSE, failing, launches, layer_of
from recurrence import MASKS, Problem, same

from keras_ln import backend, ops

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "torch":
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from keras_ln.backend.torch import fused
    from keras_ln.backend.torch import gpu as gpu_torch

    x = torch.linspace(-1.0, 1.0, 16).reshape(2, 4, 2)

    @pytest.fixture
    def driver(monkeypatch):
        # What other tests compiled has the answers of another driver.
        torch.compiler.reset()
        return gpu_emulation.use(monkeypatch)

    def test_launches(driver):
        """One forward and one backward, on the current stream."""
        layer = layer_of()
        with torch.no_grad():
            layer(x)
        assert len(launches(driver)) == 1
        layer(x).sum().backward()
        found = launches(driver)
        assert [line[:3] for line in found] == [
            ("cluster", gpu_emulation.STREAM, 0)
        ] * 3
        assert driver.fake.fake_contexts() == 0

    @pytest.mark.parametrize(("name", "most"), [("LNLSTM", 40), ("LNGRU", 65)])
    def test_arrays_around_a_launch(name, most, driver, monkeypatch):
        """How many as large as x W a training step reads and writes."""

        class Counter(TorchDispatchMode):
            elements = 0

            def __torch_dispatch__(self, op, types, args=(), kwargs=None):
                result = op(*args, **kwargs or {})
                views = (r.alias_info is not None for r in op._schema.returns)
                if "keras_ln" not in str(op) and not any(views):
                    found = keras.tree.flatten((args, result))
                    found = [a for a in found if isinstance(a, torch.Tensor)]
                    self.elements += sum(
                        a.numel()
                        for a in found
                        if a.shape[:1] in ((6,), (rows,))
                        and a.numel() >= rows * 40
                    )
                return result

        def as_on_a_gpu(condition, function, x, *others):
            rows = condition.any(-1)[..., None]
            return torch.where(rows, function(x, *others), x)

        monkeypatch.setattr(fused, "revise", as_on_a_gpu)
        monkeypatch.setattr(backend, "on_cpu", lambda: False)
        layer, rows = layer_of(name, 40, return_sequences=True), 6 * 7
        x = torch.ones(6, 7, 2, requires_grad=True)
        with Counter() as counter:
            layer(x, training=True).sum().backward()
        assert len(launches(driver)) == 2
        products = rows * layer.cell.kernel.shape[1]
        assert counter.elements <= most * products, counter.elements / products

    def test_the_second_gpu(monkeypatch):
        """Of another kind: its blocks meet in memory of torch's."""
        driver = gpu_emulation.use(monkeypatch, device=1)
        for name in ("LNLSTM", "LNGRU"):
            arguments = {"units": 40, "return_sequences": True}
            problem = Problem(BY_NAME[name], arguments, mask=MASKS["middle"])
            same(
                problem.run(problem.layer(dtype="float32")),
                problem.run(problem.layer(use_fused=False)),
                CLOSE,
            )
        found = launches(driver)
        assert len(found) >= 4
        assert {line[:3] for line in found} == {
            ("grid", gpu_emulation.STREAM, 1)
        }

    def test_products_are_as_precise_as_torch_s_lstm(driver, monkeypatch):
        layer, found = layer_of(), {}
        rnn = torch.backends.cudnn.rnn
        for precision in ("ieee", "tf32"):
            monkeypatch.setattr(rnn, "fp32_precision", precision)
            with torch.no_grad():
                found[precision] = layer(x)
        with torch.no_grad():
            layer.use_fused = False
            expected = layer(x)
        errors = {p: (y - expected).abs().max() for p, y in found.items()}
        assert errors["ieee"] < 2e-6 < 2e-5 < errors["tf32"] < 1e-2

    def test_transforms(driver):
        """vmap, and gradients by torch.func, of which each row is a launch."""
        layer = layer_of()
        rows = torch.stack([x, 2.0 * x, -x])
        weights = {
            name: weight
            for name, weight in layer.named_parameters()
            if weight.is_floating_point()
        }

        def loss(weights, x):
            options = {"training": True}
            run = torch.func.functional_call
            return (run(layer, weights, (x,), options) ** 3).sum()

        expected = [torch.func.grad(loss)(weights, row) for row in rows]
        # Grad mode is on there: the gradient is one of ordinary operations.
        assert len(launches(driver)) == 3
        found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, rows)
        for name, row in found.items():
            for k, one in enumerate(expected):
                torch.testing.assert_close(
                    row[k], one[name], rtol=1e-5, atol=1e-6
                )
        assert len(launches(driver)) == 6

    def test_second_derivatives_and_forward_mode(driver):
        layer, plain = layer_of(), layer_of(use_fused=False)
        assert len(launches(driver)) == 0

        def second(layer):
            given = x.clone().requires_grad_()
            (first,) = torch.autograd.grad(
                (layer(given) ** 2).sum(), given, create_graph=True
            )
            return torch.autograd.grad((first**2).sum(), given)[0]

        torch.testing.assert_close(
            second(layer), second(plain), rtol=1e-4, atol=1e-5
        )
        count = len(launches(driver))
        assert count >= 1
        found = torch.func.jvp(layer, (x,), (x,))
        expected = torch.func.jvp(plain, (x,), (x,))
        torch.testing.assert_close(found, expected)
        assert len(launches(driver)) == count

    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
    def test_compiled_programs(name, driver):
        """In one graph, whose gradients are right."""
        layer = layer_of(name, return_sequences=True)
        weights = [v.value for v in layer.trainable_variables]

        def loss(given):
            return (layer(given) ** 3).sum()

        expected = torch.autograd.grad(loss(x), weights)
        assert len(launches(driver)) == 2
        run = torch.compile(loss, backend="aot_eager", fullgraph=True)
        found = torch.autograd.grad(run(x), weights)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        assert len(launches(driver)) == 4

    @pytest.mark.promise("the first call is inside a CUDA graph capture")
    @pytest.mark.parametrize("name", ["LNLSTM", "LNGRU", "WNLSTM"])
    def test_a_graph_holds_no_loading(name, driver, monkeypatch):
        """Capturing after a first call outside works."""
        layer = layer_of(name, units=40)
        monkeypatch.setattr(gpu_torch, "_captures", lambda: True)
        with pytest.raises(RuntimeError, match="Run the layer once, with a gr"):
            layer(x)
        monkeypatch.setattr(gpu_torch, "_captures", lambda: False)
        layer(x)
        # The gradient's kernel is loaded too.
        assert sorted(backward for _, backward, *_ in gpu_torch._known) == [
            *(False, True)
        ]
        driver.fake.fake_forget()
        driver.fake.fake_memory(ctypes.c_uint64(0), ctypes.c_uint64(2**63), 0)
        monkeypatch.setattr(gpu_torch, "_captures", lambda: True)
        for function in ("as_tensor", "tensor"):
            made = getattr(torch, function)

            def from_tensors(x, *args, _made=made, **kwargs):
                assert isinstance(x, torch.Tensor), f"{x} comes from the host"
                return _made(x, *args, **kwargs)

            monkeypatch.setattr(torch, function, from_tensors)
        layer(x).sum().backward()
        # Nothing that a capture forbids: no copying, no loading, no waiting.
        assert [line[0] for line in driver.log()] == ["cluster"] * 2

    def test_more_rows_than_run_at_once(driver, monkeypatch):
        """In eights: groups of 16 rows, of one block each."""
        rows = torch.sin(torch.arange(65 * 2 * 2.0)).reshape(65, 2, 2)
        for name in ("LNLSTM", "LNGRU"):
            found = []
            for how in ({}, {"use_fused": False}):
                inputs = rows.clone().requires_grad_()
                (layer_of(name, **how)(inputs) ** 3).sum().backward()
                found.append(inputs.grad)
            torch.testing.assert_close(*found, **CLOSE)
        assert [line[3] for line in launches(driver)] == [5] * 4
        # A capture needs this kernel too, not only the one for fewer rows.
        gpu_torch._known.clear()
        layer_of()(rows[:7])
        monkeypatch.setattr(gpu_torch, "_captures", lambda: True)
        layer_of()(rows[:64])
        with pytest.raises(RuntimeError, match="on a batch of the same size"):
            layer_of()(rows)

    @pytest.mark.promise("no memory on the device")
    @pytest.mark.parametrize(
        "function, code, error, sentence",
        [
            ("cuLaunchKernelEx", 2, MemoryError, "GPU 0: out of memory."),
            ("cuLaunchKernelEx", 700, RuntimeError, "illegal memory access"),
            ("cuCtxPushCurrent", 101, RuntimeError, "invalid device ordinal."),
        ],
    )
    def test_errors_of_the_driver(function, code, error, sentence, driver):
        layer = layer_of()
        layer(x)
        with failing(driver, function, code):
            with pytest.raises(error, match=sentence):
                layer(x)

    def test_no_memory_while_a_kernel_is_loaded(driver, monkeypatch):
        """It is asked again: at the next call there may be some."""
        gpu_emulation.forget(driver, monkeypatch, rows=8)
        with failing(driver, "cuLibraryLoadData", 2):
            with pytest.raises(MemoryError, match="Or set KERAS_LN_KERNELS=0"):
                layer_of()(x)
        layer_of()(x)
        assert len(launches(driver)) == 1

    def test_inference_loads_no_gradient(driver):
        with torch.no_grad():
            layer_of()(x)
        assert [backward for _, backward, *_ in gpu_torch._known] == [False]

    @pytest.mark.promise("a kernel that does not compile or load")
    def test_a_kernel_that_does_not_load(driver):
        """Once told, the next implementation runs."""
        layer = layer_of(units=5)  # Which the driver has not.
        with pytest.warns(
            UserWarning, match="A GPU kernel cannot be used: loading"
        ):
            found = layer(x)
        layer.use_fused = False
        torch.testing.assert_close(found, layer(x))
        assert not launches(driver)

    @pytest.mark.promise("tensors on two devices")
    def test_tensors_on_two_devices(driver):
        from keras_ln_kernels.gpu_call import GpuCall

        arrays = {
            "zx": torch.zeros(2, 4, 12),
            "initial_h": torch.zeros(2, 3),
            "recurrent": torch.zeros(3, 12, device="meta"),
        }
        results = ("final_h", "final_c")
        call = GpuCall(
            "lstm", False, "float32", (*arrays,), results, (1e-5, False)
        )
        message = "^recurrent: expected .* on cpu. Received.* on meta.$"
        with pytest.raises(ValueError, match=message):
            gpu_torch.call_gpu(call, arrays)
        arrays["recurrent"] = torch.zeros(3, 16)
        with pytest.raises(ValueError, match="^recurrent: .*shape .3, 12. on"):
            gpu_torch.call_gpu(call, arrays)

    def test_tensors_on_a_cpu(monkeypatch):
        """Where nothing is replaced: the switch alone does no harm."""
        monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
        layer = layer_of()
        reason = ops.implementation(layer)[1]["cuda"]
        assert reason == "Tensors are on cpu: the GPU kernels need CUDA."
        layer(x)
