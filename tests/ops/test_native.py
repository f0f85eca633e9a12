"""The CPU kernels behind the layers: when they run, and how.

That their numbers are right, the suite's other tests see when they run with
--kernels.
"""

import concurrent.futures
import importlib
import os
import resource
import subprocess
import sys

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import BY_NAME
from recurrence import MASKS, Problem
from tolerances import FLOAT64

import keras_ln
from keras_ln import backend, ops
from keras_ln.ops.recurrence import choice

LAYERS = ["LNSimpleRNN", "LNGRU", "LNLSTM", "WNLSTM"]
x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]


@pytest.fixture
def calls(monkeypatch):
    """What the kernels are asked for, while the test runs."""
    made = []
    call_native = backend.call_native

    def recorded(call, arrays):
        made.append(call)
        return call_native(call, arrays)

    monkeypatch.setattr(backend, "call_native", recorded)
    choice.native._operation.cache_clear()
    yield made
    choice.native._operation.cache_clear()


@pytest.mark.parametrize("name", LAYERS)
def test_cells_declare_what_the_kernels_know(name):
    """Both have a table of their own."""
    from keras_ln_kernels.cells import CELLS

    cell = getattr(keras_ln, f"{name}Cell").equations
    kernels = CELLS[cell.in_kernels]
    names = choice.native.names_in_kernels(cell)
    vectors = [names.get(v.name, v.name) for v in cell.vectors]
    assert sorted(vectors) == sorted(kernels.vectors)
    for vector in cell.vectors:
        of_units = vector.name.startswith("state_")
        assert vector.size == (1 if of_units else kernels.gates)
    assert cell.gates == kernels.gates
    assert cell.states == len(kernels.states)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_run_on_kernels(name, calls):
    problem = Problem(BY_NAME[name], mask=MASKS["middle"], training=True)
    layer = problem.layer()
    chosen, reasons = ops.implementation(layer)
    assert chosen == "native"
    assert set(reasons) == {"fused", "loop"}
    problem.check(layer)
    # JAX looks at the function itself before it takes its rule.
    assert [call.backward for call in calls[-2:]] == [False, True]
    assert all("mask" in call.arguments for call in calls)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_zoneout(name, training, calls):
    """By choices, or by shares."""
    row, rng = BY_NAME[name], np.random.default_rng(0)
    names = ("zoneout", "cell_zoneout")[: row.state_count]
    arguments = dict(zip(names, (0.3, 0.2), strict=False))
    problem = Problem(
        row,
        {"return_sequences": True, "return_state": True, **arguments},
        mask=MASKS["middle"],
        given_states=True,
        training=training,
    )
    if training:
        shape = (*problem.shape[:2], 3)
        problem.choices = {name: rng.random(shape) < 0.4 for name in names}
    layer = problem.layer()
    assert ops.implementation(layer)[0] == "native"
    problem.check(layer)
    assert all(("zoneout" in call.arguments) == training for call in calls)
    assert all((call.zoneout_share > 0.0) != training for call in calls)


@pytest.mark.parametrize("arguments", [{"normalize": ()}, {"center": False}])
def test_the_recurrent_bias(arguments, calls):
    arguments = {"use_bias": True, "return_sequences": True, **arguments}
    problem = Problem(BY_NAME["LNGRU"], arguments)
    layer = problem.layer()
    assert ops.implementation(layer)[0] == "native"
    problem.check(layer)
    assert all("recurrent_bias" in call.arguments for call in calls)


@pytest.mark.parametrize("name", LAYERS)
def test_inference_keeps_no_residuals(name, calls):
    layer = getattr(keras_ln, name)(3)
    if BACKEND == "torch":
        with torch.no_grad():
            layer(x)
    else:
        layer(x)
    assert calls and not any("residuals" in call.results for call in calls)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"activation": "relu"}, "no `activation` but tanh"),
        ({"recurrent_activation": "linear"}, "no `recurrent_activation` but"),
        ({"dtype": "mixed_bfloat16"}, "Received: bfloat16, float32"),
        ({"dtype": "float16"}, "Received: float16, float32"),
        ({"use_fused": False}, "use_fused=False"),
        ({"unroll": True}, "unroll=True"),
    ],
    ids=str,
)
def test_what_kernels_do_not_run(arguments, sentence, calls):
    layer = keras_ln.LNLSTM(3, **arguments)
    chosen, reasons = ops.implementation(layer)
    assert chosen != "native"
    assert sentence in reasons["native"]
    layer(x)
    assert not calls


def test_a_state_of_another_dtype_is_not_for_kernels(calls):
    states = [np.zeros((2, 3), dtype) for dtype in ("float32", "float64")]
    weights = {
        v.name: keras.ops.convert_to_tensor(v)
        for v in made(keras_ln.LNLSTM(3)).weights
    }
    states = [keras.ops.convert_to_tensor(s, dtype=s.dtype) for s in states]
    _, _, (_, c) = ops.ln_lstm(x, states, weights)
    assert keras.backend.standardize_dtype(c.dtype) == "float64"
    assert not calls


def made(layer):
    layer.build(x.shape)
    return layer


def test_no_rows(calls):
    layer = keras_ln.LNGRU(3, return_sequences=True)
    assert layer(x[:0]).shape == (0, 4, 3)
    assert BACKEND == "tensorflow" or not calls


def test_kernels_can_be_turned_off(monkeypatch, calls):
    layer = keras_ln.LNLSTM(3)
    with ops.portable():
        assert "portable" in ops.implementation(layer)[1]["native"]
        layer(x)
    monkeypatch.setenv("KERAS_LN_KERNELS", "0")
    chosen, reasons = ops.implementation(layer)
    assert chosen == "fused"
    assert reasons["native"] == "KERAS_LN_KERNELS=0 is set."
    layer(x)
    assert not calls


def test_fused_means_that_the_gradient_is_hand_written(calls):
    layer = keras_ln.LNLSTM(3, use_fused=True)
    assert ops.implementation(layer)[0] == "native"
    layer(x)
    assert calls


def test_threads_and_columns_change_nothing(tmp_path):
    """Nor do callers at once, who wait in the framework's own threads."""
    code = """
import concurrent.futures, sys
import numpy as np, keras
from descriptors import BY_NAME
from recurrence import Problem
problem = Problem(BY_NAME["LNLSTM"], {"units": 64}, shape=(13, 9, 40))
layer = problem.layer()
def run(_):
    flat = keras.tree.flatten(problem.run(layer))
    return [
        keras.ops.convert_to_numpy(a) for a in flat if hasattr(a, "shape")
    ]
found = run(0)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for others in pool.map(run, range(8)):
        for a, b in zip(found, others, strict=True):
            np.testing.assert_array_equal(a, b)
np.savez(sys.argv[1], *found)
"""
    # Threads of torch, of TensorFlow, and the cores that JAX counts.
    names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
    results = []
    for threads, sharing in (("1", "rows"), ("3", "rows"), ("3", "columns")):
        path = str(tmp_path / f"{threads}{sharing}.npz")
        subprocess.run(
            [sys.executable, "-c", code, path],
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(sys.path)}
            | {"KERAS_LN_KERNELS_SHARING": sharing}
            | dict.fromkeys(names, threads),
            check=True,
            timeout=300,
        )
        results.append(np.load(path))
    for name in results[0].files:
        for other in results[1:]:
            np.testing.assert_array_equal(results[0][name], other[name])


def test_no_memory():
    """One unit of many features: packed, the kernel is 16 times as large."""
    if BACKEND == "tensorflow":
        kind, message = tf.errors.ResourceExhaustedError, "out of memory"
    elif BACKEND == "jax":
        # Keras' own words around those of JAX, or, where the program runs in
        # the background, JAX alone when its results are taken.
        kind = (ValueError, jax.errors.JaxRuntimeError)
        message = "RESOURCE_EXHAUSTED: out of memory"
    else:
        kind, message = MemoryError, "no scratch memory for Sizes"
    layer = keras_ln.LNLSTM(1, normalize=())
    given = keras.ops.ones((1, 1, 2**20))
    layer.build(given.shape)
    layer(given)
    importlib.import_module("keras_ln_kernels").release_scratch()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + 2**27
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        with pytest.raises(kind, match=message):
            keras.ops.convert_to_numpy(layer(given))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    layer(given)


if BACKEND == "torch":
    import torch

    def arguments_of(name, results):
        """Tensors for the operator, and its other arguments."""
        from keras_ln_kernels.call import FORWARD

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
        options = (",".join(results), name, 1e-5, False, False, 0.2, 0.0)
        return [arrays.get(key) for key in FORWARD[0]], options

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
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            timeout=120,
        )


if BACKEND == "tensorflow":
    import tensorflow as tf

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

    def test_kernels_that_tensorflow_cannot_call(monkeypatch):
        name = "tensorflow.no_such_module"
        monkeypatch.setattr(backend._native, "_CALL_MODULE", name)
        backend._native._registered.cache_clear()
        chosen, reasons = ops.implementation(keras_ln.LNLSTM(3))
        backend._native._registered.cache_clear()
        assert chosen == "fused"
        assert "has no custom calls of XLA" in reasons["native"]


if BACKEND == "jax":
    import jax

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

    def test_without_jit(calls):
        layer = made(keras_ln.LNLSTM(3))
        expected = layer(x)
        with jax.disable_jit():
            np.testing.assert_allclose(layer(x), expected, rtol=1e-6)
        assert len(calls) > 1

    def test_buffers_that_do_not_fit():
        """What a wrong program would hand over is refused."""
        from keras_ln_kernels import xla
        from keras_ln_kernels.call import Call

        call = Call(
            *("simple_rnn", "float32", 1e-5, False, False),
            ("x", "kernel", "recurrent_kernel"),
            ("final_h",),
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
