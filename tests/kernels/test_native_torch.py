"""The CPU kernels on torch: programs, graphs, and memory that serves again."""

import textwrap
import weakref

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import BY_NAME
from layer_calls import LAYERS, made
from recurrence import Problem
from scripts import run_python
from tolerances import FLOAT64

import keras_ln
from keras_ln._keras import of_session

x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]

if BACKEND == "torch":
    import torch

    from keras_ln.backend import native
    from keras_ln.backend.torch import gpu as gpu_torch
    from keras_ln.backend.torch import native as native_torch

    @pytest.fixture(autouse=True)
    def small_pieces_serve_again_too(monkeypatch):
        monkeypatch.setattr(native_torch, "_SMALL", 0)

    @pytest.mark.parametrize("module", [native_torch, gpu_torch])
    def test_before_torch_2_5(monkeypatch, module):
        """No operators, and a sentence."""
        monkeypatch.delattr(torch.library, "register_vmap")
        found = module._make_operators.__wrapped__()
        assert found == native_torch.TOO_OLD
        assert torch.__version__ in found

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

    @pytest.mark.promise("a tensor does not fit a kernel's call")
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

    def test_the_first_calls_of_threads():
        """One registers the operators, in a process that has called none."""
        script = """
            import concurrent.futures, threading, keras, torch, keras_ln
            layer = keras.layers.LSTM(8)
            model = keras.Sequential([keras.Input((5, 3)), layer])
            fast, together = keras_ln.with_fast_rnn(model), threading.Barrier(4)

            def first(_):
                together.wait()
                with torch.no_grad():
                    return fast(torch.ones(2, 5, 3))

            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                print(len([*pool.map(first, range(4))]), "calls")
            """
        run = run_python("-c", textwrap.dedent(script))
        assert run.stdout == "4 calls\n", run.stderr

    def test_flops():
        """Forward those of the loop's products, and twice as many backward."""
        from torch.utils.flop_counter import FlopCounterMode

        counts = []
        for options in ({}, {"use_fused": False}):
            layer = made(keras_ln.LNGRU(3, **options))
            with FlopCounterMode(display=False) as forward:
                y = layer(x)
            with FlopCounterMode(display=False) as backward:
                y.sum().backward()
            counts.append((forward, backward))
        (ours, backward), (loops, _) = counts
        assert ours.get_total_flops() == loops.get_total_flops() > 0
        assert backward.get_total_flops() == 2 * ours.get_total_flops()

    def test_modes_and_views_of_torch():
        """Another default device, gradients in inference, a lazy minus."""
        layer, given = made(keras_ln.LNLSTM(4)), torch.randn(2, 4, 3)
        expected = layer(given)
        keras.backend.clear_session()  # No memory that would serve again.
        with torch.device("meta"):
            found = layer(given, training=True)
            found.sum().backward()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        with torch.inference_mode(), torch.enable_grad():
            found = layer(given)
        torch.testing.assert_close(found, expected.detach(), rtol=0, atol=0)
        found = layer(torch._neg_view(given))
        torch.testing.assert_close(found, layer(-given), rtol=0, atol=0)

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

    @pytest.mark.parametrize(
        "threads, limit, sharing",
        [(3, "9", "columns"), (3, "1", "rows"), (1, "9", "rows")],
    )
    def test_the_kernels_run_on_threads_of_torch(
        threads, limit, sharing, tmp_path
    ):
        """Wherever torch itself may be at work, and nothing waits for ever.

        Among other OpenMP libraries, within a team of torch's, in several
        threads of Python, with one thread, in forked children and workers of
        a DataLoader, and while the process ends.
        """
        done = run_python(
            *("-W", "ignore", "-c", ON_THREADS_OF_TORCH, tmp_path, threads),
            OMP_NUM_THREADS=str(threads),
            OMP_THREAD_LIMIT=limit,
            KERAS_LN_KERNELS_SHARING=sharing,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["0", "threads", "more", "right"]


# Ends by SIGALRM where something hangs.
ON_THREADS_OF_TORCH = """
import concurrent.futures, ctypes, os, pathlib, signal, sys, threading
import importlib.util
signal.alarm(300)
# Another OpenMP library, as scikit-learn brings one: torch's with a new name.
(package,) = importlib.util.find_spec("torch").submodule_search_locations
for path in pathlib.Path(package, "lib").glob("libgomp*.so.1"):
    name = path.name.encode()
    other = pathlib.Path(sys.argv[1], "libgomp-other.so")
    other.write_bytes(path.read_bytes().replace(name, name[:-1] + b"2"))
    ctypes.CDLL(str(other)).omp_get_max_threads()
import keras, keras_ln, torch
from keras_ln_kernels import Call, options, run
from keras_ln_kernels.library import openmp_of
threads = int(sys.argv[2])
torch.set_num_threads(threads)
keras.utils.set_random_seed(0)
x = torch.randn(24, 6, 64)
# Orthogonal matrices are by LAPACK, which hangs where a team has less threads
# than it asked for.
layer = keras_ln.LNLSTM(64, recurrent_initializer="glorot_uniform")
layer.build(x.shape)
weight = layer.trainable_variables[0].value

def step(_=None):
    y = layer(x, training=True)
    return y.detach(), torch.autograd.grad((y**2).sum(), weight)[0]

def check(found):
    assert all(map(torch.equal, found, expected))

def count():
    return len(os.listdir("/proc/self/task"))

torch.ones(512, 512) @ torch.ones(512, 512)
before = count()
expected = step()
torch.ones(512, 512) @ torch.ones(512, 512)
# Threads of the extension or of a second library would be more.
print(count() - before, "threads more")

with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for found in pool.map(step, range(8)):
        check(found)

inner = []
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: inner.append(step()))
kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint] * 2)
parallel = kind(openmp_of(torch._C.__file__).parallel)
parallel(ctypes.cast(body, ctypes.c_void_p), None, 0, 0)
for found in inner:
    check(found)

torch.set_num_threads(1)
check(step())
torch.set_num_threads(threads)
check(step())

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return step()

loader = torch.utils.data.DataLoader(
    Data(), batch_size=None, num_workers=1, multiprocessing_context="fork"
)
for found in loader:
    check(found)
child = os.fork()
if child == 0:
    signal.alarm(100)
    check(step())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(step())

# In the middle of a call when the process ends. Not of a layer: before 3.14
# Python ends such a thread where torch's C++ permits no end.
call = Call(
    *("simple_rnn", "float32", ("x", "kernel", "recurrent_kernel")),
    *(("final_h",), options(epsilon=1e-5)),
)
shapes = {"x": x.shape, "kernel": (64, 64), "recurrent_kernel": (64, 64)}
arrays = {n: torch.ones(s) for n, s in {**shapes, "final_h": (24, 64)}.items()}
places = {name: array.data_ptr() for name, array in arrays.items()}
started = threading.Event()
def work():
    while True:
        openmp = openmp_of(torch._C.__file__)
        run(call, places, call.sizes(shapes), threads, openmp)
        started.set()
threading.Thread(target=work, daemon=True).start()
started.wait()
print("right")
"""

if BACKEND == "torch":

    def kept_pieces():
        return of_session("pieces", native.Pieces)

    def addresses_in(pieces):
        return {piece.data_ptr() for piece in pieces._pieces}

    def test_memory_of_residuals_serves_again():
        """But not while a graph holds it."""
        layer, given = made(keras_ln.LNLSTM(16)), torch.randn(2, 4, 3)

        def run():
            return [layer(given, training=True) for _ in range(3)]

        keras.backend.clear_session()
        pieces = kept_pieces()
        graphs = run()
        assert len(pieces) == 0
        weight = layer.trainable_variables[0].value
        found = [torch.autograd.grad(g.sum(), weight)[0] for g in graphs]
        torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)
        del graphs
        assert len(pieces) == 3
        addresses = addresses_in(pieces)
        graphs = run()
        assert len(pieces) == 0
        del graphs
        assert addresses_in(pieces) == addresses

    def test_memory_of_residuals_is_bounded(monkeypatch):
        """By its bytes, and freed with the session."""
        keras.backend.clear_session()
        layer = made(keras_ln.LNLSTM(16))
        graph = layer(torch.randn(2, 4, 3), training=True)
        del graph
        one = kept_pieces().bytes
        monkeypatch.setattr(native, "MOST_BYTES", 5 * one // 2)
        graphs = [layer(torch.randn(2, 4, 3), training=True) for _ in range(6)]
        assert not kept_pieces()
        del graphs
        assert len(kept_pieces()) == 2
        graph = layer(torch.randn(40, 4, 3), training=True)
        del graph
        # Too large for any to stay.
        assert not kept_pieces()

        graph = layer(torch.randn(2, 4, 3), training=True)
        held = layer(torch.randn(2, 4, 3), training=True)
        del graph
        piece = weakref.ref(kept_pieces()._pieces[0])
        keras.backend.clear_session()
        assert piece() is None
        del held
        assert not kept_pieces()
