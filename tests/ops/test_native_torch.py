"""The CPU kernels on torch: its operator, compilers, threads, residuals."""

import concurrent.futures

import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import BY_NAME
from native_layers import LAYERS, made
from recurrence import Problem
from scripts import run_python
from tolerances import FLOAT64

import keras_ln

x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "torch":
    import torch

    def arguments_of(name, results):
        """Tensors for the operator, and its other arguments."""
        from keras_ln_kernels import call

        torch.manual_seed(0)
        b, t, d, u, n = 3, 4, 2, 5, {"lstm": 4, "gru": 3, "simple_rnn": 1}[name]
        shapes = {"x": (b, t, d), "input_mask": (b, d), "initial_h": (b, u)}
        shapes |= {"kernel": (d, n * u), "recurrent_kernel": (u, n * u)}
        if name == "lstm":
            shapes |= {"initial_c": (b, u), "state_gamma": (u,)}
        shapes |= {"bias": (n * u,), "kernel_gamma": (n * u,)}
        arrays = {
            key: torch.randn(
                # Dropout masks are constants.
                *shape,
                dtype=torch.float64,
                requires_grad=key != "input_mask",
            )
            for key, shape in shapes.items()
        }
        arrays["mask"] = torch.rand(b, t) < 0.7
        given = call.options(epsilon=1e-5, zoneout_share=0.2)
        options = (",".join(results), name, *given)
        return [arrays.get(key) for key in call.FORWARD[0]], options

    @pytest.mark.parametrize("name", ["lstm", "gru", "simple_rnn"])
    @pytest.mark.parametrize("keep", [False, True])
    def test_operator(name, keep):
        """What torch itself asks of one."""
        results = ["outputs", "final_h"]
        results += ["final_c"] if name == "lstm" else []
        results += ["residuals"] if keep else []
        arrays, options = arguments_of(name, results)
        # Bytes of residuals that nobody needs may be anything.
        tests = ("test_schema", "test_faketensor", "test_autograd_registration")
        more = () if keep else ("test_aot_dispatch_dynamic",)
        torch.library.opcheck(
            torch.ops.keras_ln.forward.default,
            (*arrays, *options),
            test_utils=(*tests, *more),
        )

    @pytest.mark.parametrize(
        "change, message",
        [
            (lambda a: a.float(), "expected a tensor of torch.float64"),
            (lambda a: a[:, :-1], r"shape \(2, 20\) on the CPU"),
            (lambda a: a.flatten(), r"Received: torch.float64, \(40,\) on cpu"),
        ],
    )
    def test_arrays_that_do_not_fit(change, message):
        arrays, options = arguments_of("lstm", ["final_h", "final_c"])
        shapes = [None if a is None else a.shape for a in arrays]
        place = shapes.index((2, 20))
        arrays[place] = change(arrays[place])
        with pytest.raises(ValueError, match=f"^kernel: .*{message}"):
            torch.ops.keras_ln.forward(*arrays, *options)

    def test_arrays_with_other_strides():
        arrays, options = arguments_of(
            "lstm", ["outputs", "final_h", "final_c"]
        )
        expected = torch.ops.keras_ln.forward(*arrays, *options)[0]
        strided = [
            None if a is None else torch.stack([a, a], -1)[..., 0]
            for a in arrays
        ]
        found = torch.ops.keras_ln.forward(*strided, *options)[0]
        torch.testing.assert_close(found, expected, rtol=0, atol=0)

    @pytest.mark.parametrize("name", LAYERS)
    def test_compiled_programs_call_kernels(name):
        """In one graph, whose gradients are right."""
        problem = Problem(BY_NAME[name], {"return_sequences": True})
        layer = problem.layer()
        given = torch.tensor(problem.x)
        weights = [v.value for v in layer.trainable_variables]
        graphs = []

        def remember(graph, examples):
            graphs.append(graph.print_readable(print_output=False))
            return graph.forward

        def loss(given):
            return (layer(given) ** 3).sum()

        expected = torch.autograd.grad(loss(given), weights)
        for run in (
            torch.compile(loss, backend=remember, fullgraph=True),
            torch.compile(loss, backend="aot_eager", fullgraph=True),
        ):
            found = torch.autograd.grad(run(given), weights)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, **FLOAT64)
        assert "keras_ln.forward" in graphs[0]

    def test_compiled_programs_have_no_second_derivatives():
        problem = Problem(BY_NAME["LNLSTM"])
        layer = problem.layer()
        given = torch.tensor(problem.x, requires_grad=True)
        run = torch.compile(layer, backend="eager", fullgraph=True)
        (first,) = torch.autograd.grad(
            run(given).sum(), given, create_graph=True
        )
        with pytest.raises(NotImplementedError, match="without torch.compile"):
            torch.autograd.grad((first**2).sum(), given)

    def test_exported_programs_hold_no_kernels():
        layer = keras_ln.LNLSTM(3)
        layer(x)
        program = torch.export.export(layer, (torch.tensor(x),))
        assert "keras_ln" not in program.graph_module.code
        np.testing.assert_allclose(
            program.module()(torch.tensor(x)).detach(),
            layer(x).detach(),
            rtol=1e-5,
            atol=1e-6,
        )

    def test_many_threads_at_once():
        """Each with steps of its own, forwards and backwards."""
        layer = made(keras_ln.LNLSTM(16, return_sequences=True))
        inputs = torch.randn(8, 2, 6, 3)
        weight = layer.trainable_variables[0].value

        def step(given):
            loss = (layer(given, training=True) ** 2).sum()
            return torch.autograd.grad(loss, weight)[0]

        expected = [step(given) for given in inputs]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(5):
                for a, b in zip(pool.map(step, inputs), expected, strict=True):
                    torch.testing.assert_close(a, b, rtol=0, atol=0)

    def test_the_gradient_reads_residuals_where_they_were_left(monkeypatch):
        """They are the most memory of a step: nothing copies them."""
        from keras_ln_kernels import call

        run, places = call.run, []

        def recorded(this, addresses, *more):
            places.append((this.backward, addresses["residuals"]))
            return run(this, addresses, *more)

        monkeypatch.setattr(call, "run", recorded)
        made(keras_ln.LNLSTM(3))(x, training=True).sum().backward()
        (first, left), (last, read) = places
        assert (first, last) == (False, True)
        assert left == read

    def test_a_dispatch_mode_sees_the_operator():
        """As torch's profilers and counters of operations do."""
        seen = []

        class Mode(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, op, types, args=(), kwargs=None):
                seen.append(str(op))
                return op(*args, **(kwargs or {}))

        with torch.no_grad(), Mode():
            made(keras_ln.LNLSTM(3))(x)
        assert "keras_ln.forward.default" in seen

    def test_residuals_of_rows_of_a_vmap():
        """Whose bytes are no multiple of what the kernels need."""
        from keras_ln_kernels.call import BACKWARD, FORWARD

        arrays, options = arguments_of("simple_rnn", ["final_h", "residuals"])
        given = {
            name: array.detach()
            for name, array in zip(FORWARD[0], arrays, strict=True)
            if array is not None
        }
        given["mask"] = given["mask"][:, :3]
        x = given["x"][:, :3]

        def gradient(x):
            arrays = given | {"x": x}
            made = torch.ops.keras_ln.forward(
                *[arrays.get(name) for name in FORWARD[0]], *options
            )
            arrays["residuals"] = made[FORWARD[1].index("residuals")]
            assert arrays["residuals"].shape[-1] % 16
            arrays["d_final_h"] = given["initial_h"]
            return torch.ops.keras_ln.backward(
                *[arrays.get(name) for name in BACKWARD[0]], "d_x", *options[1:]
            )[0]

        rows = torch.stack([x, 2.0 * x])
        expected = torch.stack([gradient(x) for x in rows])
        found = torch.vmap(gradient)(rows)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)

    def test_a_forked_process():
        """Where torch's threads are gone, and ours."""
        code = """
import os, torch, keras_ln
torch.set_num_threads(2)
layer = keras_ln.LNLSTM(64)
x = torch.ones(8, 5, 3)
before = layer(x)
before.sum().backward()
child = os.fork()
if child == 0:
    with torch.no_grad():
        os._exit(int(not torch.equal(before, layer(x))))
assert os.waitpid(child, 0)[1] == 0
"""
        done = run_python("-W", "ignore", "-c", code)
        assert done.returncode == 0, done.stderr
