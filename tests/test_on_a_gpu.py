"""The recurrent layers on a GPU, in precisions and with options of users.

With `-n 4` they take about a minute on JAX, most of it in XLA's compiler.
"""

import contextlib
import functools

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND, compiled, gradients
from descriptors import BY_NAME, SEQUENCE_LAYERS
from recurrence import MASKS, RESETS, Problem, compare
from reference.gradients import STEP, inner

import keras_ln
from benchmarks import harness, memory

pytestmark = pytest.mark.accelerator
# The scan on JAX takes four steps an iteration, and the rest one by one.
B, T, D, U = 32, 18, 64, 256
# What the GPU kernels run, if keras-ln-kernels is installed.
ON_CUDA = ("LNGRU", "LNLSTM", "WNLSTM")
SWITCH = {"fused": "0", "cuda": "cuda"}
# By what the factors of products are rounded to: the policy, their bits, the
# most that the norm of an error is, relative to what is right, and how many
# times the scan's error that of the kernels is at most.
PRECISIONS = {
    "TF32": ("float32", 11, 1e-2, 3),
    "float32": ("float32", 24, 1e-4, 20),
    "float16": ("mixed_float16", 11, 1e-2, 3),
    "bfloat16": ("mixed_bfloat16", 8, 6e-2, 3),
}
PLAIN = {
    "units": 40,
    "return_sequences": True,
    # The values are random; XLA takes long for the decomposition of others.
    "recurrent_initializer": "zeros",
}


@pytest.fixture(autouse=True)
def gpu():
    assert harness.on_gpu(), "these tests need a GPU"


@contextlib.contextmanager
def products_in(precision):
    """Products of float32 are rounded to TF32, or not."""
    if BACKEND == "jax":
        import jax

        asked = "highest" if precision == "float32" else None
        with jax.default_matmul_precision(asked):
            yield
        return
    import torch

    parts = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [part.allow_tf32 for part in parts]
    try:
        for part in parts:
            part.allow_tf32 = precision == "TF32"
        yield
    finally:
        for part, allowed in zip(parts, before, strict=True):
            part.allow_tf32 = allowed


@pytest.fixture
def precise():
    with products_in("float32"):
        yield


@pytest.fixture
def kernels(monkeypatch):
    monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")


def runs(layer):
    """What the layer runs."""
    return keras_ln.ops.implementation(layer)[0]


def norm_of_error(found, right):
    return np.linalg.norm(np.float64(found) - right) / np.linalg.norm(right)


@functools.cache
def problem_of(name):
    """One of masked sequences, and what is right, by the loop in float64."""
    row = BY_NAME[name]
    arguments = {**PLAIN, "units": U}
    if row.batch_statistics:
        arguments["max_steps"] = T
    problem = Problem(row, arguments, shape=(B, T, D), training=True)
    problem.mask = np.random.default_rng(3).random((B, T)) < 0.8
    layer = layer_of(problem, use_fused=False)
    return problem, problem.run(layer, compiled=True)


def layer_of(problem, **arguments):
    layer = problem.layer(**arguments)
    for weight in layer.weights if problem.row.batch_statistics else ():
        # With gains of one it amplifies any rounding from step to step.
        if weight.name.endswith("gamma"):
            weight.assign(0.1 * weight)
    return layer


@pytest.mark.promise("five layers agreed with the float64 loop")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_values_and_gradients(row, precision, monkeypatch):
    """By the scan, and the kernels if they run the layer."""
    problem, right = problem_of(row.name)
    policy, bits, most, times = PRECISIONS[precision]
    worst = {}
    for implementation, switch in SWITCH.items():
        if implementation == "cuda" and row.name not in ON_CUDA:
            continue
        monkeypatch.setenv("KERAS_LN_KERNELS", switch)
        layer = layer_of(problem, dtype=policy)
        assert runs(layer) == implementation
        with products_in(precision):
            found = problem.run(layer, compiled=True)
        errors = {
            name: norm_of_error(gradient, right.gradients[name])
            for name, gradient in found.gradients.items()
        }
        errors["y"] = norm_of_error(found.outputs[0], right.outputs[0])
        print(implementation, {n: f"{e:.1e}" for n, e in errors.items()})
        worst[implementation] = max(errors.values())
        assert worst[implementation] < most
    # Both are the same to the last bit if the kernels have not run at all.
    if "cuda" in worst:
        assert worst["fused"] != worst["cuda"]
        assert worst["cuda"] < times * max(worst["fused"], 2.0**-bits)


EVERYTHING = {**PLAIN, "return_state": True}
BACKWARDS = {
    "arguments": {**EVERYTHING, "go_backwards": True},
    "mask": MASKS["middle"],
    "given_states": True,
}
RESET = {
    "arguments": EVERYTHING,
    "mask": MASKS["row"],
    "reset": RESETS["mixed"],
    "given_resets": True,
    "given_states": True,
}
RESET_BACKWARDS = {
    "arguments": {**EVERYTHING, "go_backwards": True},
    "reset": RESETS["mixed"],
}
LAST = {
    "arguments": {**PLAIN, "return_sequences": False},
    "mask": MASKS["left"],
}
LARGE = {"arguments": {**PLAIN, "units": 500}, "shape": (19, 4, 5)}


def sites(*names, **more):
    return {"arguments": {**PLAIN, "normalize": names, **more}}


BOTH = ("LNGRU", "LNLSTM")
CASES = {
    "backwards": (BACKWARDS, ON_CUDA),
    "resets": (RESET, ON_CUDA),
    "resets, backwards": (RESET_BACKWARDS, ("LNGRU",)),
    "last output": (LAST, BOTH),
    "3 units": ({"arguments": {**PLAIN, "units": 3}}, ("LNLSTM",)),
    "500 units": (LARGE, BOTH),
    "no site": (sites(use_bias=True), BOTH),
    "of x": (sites("kernel"), ("LNGRU",)),
    "of h": (sites("recurrent"), ("LNLSTM",)),
    "of c": (sites("state"), ("LNLSTM",)),
    "not centred": (sites("kernel", "recurrent", center=False), ("LNLSTM",)),
}


@pytest.mark.parametrize(
    "name, case", [(n, c) for c, (_, names) in CASES.items() for n in names]
)
def test_options(name, case, precise, kernels):
    """Against the oracle, along random directions; and twice the same bits."""
    problem = Problem(BY_NAME[name], training=True, **CASES[case][0])
    layer = problem.layer(dtype="float32")
    assert runs(layer) == "cuda"
    found = problem.run(layer, compiled=True)
    again = problem.run(layer, compiled=True)
    compare(again, found.outputs, found.gradients, {"rtol": 0, "atol": 0})
    arrays = problem.arrays(layer)
    for y, right in zip(found.outputs, problem.oracle(arrays)[0], strict=True):
        assert norm_of_error(y, right) < 1e-5
    rng, errors = np.random.default_rng(5), {}
    for weight, array in arrays.items():
        direction = rng.normal(size=array.shape)
        moved = {**arrays, weight: array + 1j * STEP * direction}
        change = inner(problem.oracle(moved)[0], problem.cotangents).imag / STEP
        gradient = np.float64(found.gradients[weight])
        error = abs((gradient * direction).sum() - change)
        errors[weight] = error / np.linalg.norm(gradient)
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.parametrize("implementation", SWITCH)
def test_fit_and_predict(implementation, monkeypatch):
    """A model trains there."""
    monkeypatch.setenv("KERAS_LN_KERNELS", SWITCH[implementation])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 20, 8)).astype("float32")
    y = x.sum((1, 2)) > 0
    model = keras.Sequential([keras_ln.LNLSTM(40), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    history = model.fit(x, y, epochs=10, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert np.isfinite(history["loss"]).all()


def small(name="LNLSTM", **arguments):
    """A layer of 40 units, and sequences for it."""
    problem = Problem(BY_NAME[name], {**PLAIN, **arguments})
    x = keras.ops.convert_to_tensor(problem.x.astype("float32"))
    return problem.layer(dtype="float32"), x


@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_second_derivatives(name, precise, monkeypatch):
    """The kernels' first derivatives can be differentiated."""
    found = {}
    for implementation, switch in SWITCH.items():
        monkeypatch.setenv("KERAS_LN_KERNELS", switch)
        layer, x = small(name)
        assert runs(layer) == implementation

        def loss(x, layer=layer):
            return keras.ops.sum(layer(x) ** 3)

        def slope(x, loss=loss):
            return keras.ops.sum(gradients(loss, x)[0] ** 2)

        run = compiled(functools.partial(gradients, slope))
        found[implementation] = run(x)[0]
    close(found["cuda"], found["fused"], rtol=1e-3, atol=1e-3)


def test_ten_thousand_steps(kernels):
    """Training needs no more memory as it goes on."""
    layer, x = small(return_sequences=False)
    assert runs(layer) == "cuda"
    step = step_of(layer, x)
    for _ in range(1_000):
        step()
    before, of_host = memory.memory_now(), harness.resident("VmRSS")
    for _ in range(10_000):
        step()
    assert memory.memory_now() < before + 1.0
    assert harness.resident("VmRSS") < of_host + 20.0


def step_of(layer, x):
    """A function that trains the layer with one step."""
    weights = [v.value for v in layer.trainable_variables]
    if BACKEND == "torch":
        import torch

        optimizer = torch.optim.SGD(weights, lr=1e-4)

        def step():
            optimizer.zero_grad()
            keras.ops.sum(layer(x, training=True) ** 2).backward()
            optimizer.step()

        return step
    import jax

    others = [v.value for v in layer.non_trainable_variables]

    @jax.jit
    def moved(weights):
        def loss(weights):
            y, _ = layer.stateless_call(weights, others, x, training=True)
            return keras.ops.sum(y**2)

        slopes = jax.grad(loss)(weights)
        return [w - 1e-4 * s for w, s in zip(weights, slopes, strict=True)]

    def step():
        weights[:] = jax.block_until_ready(moved(weights))

    return step


if BACKEND == "jax":
    import jax

    def test_transformations(precise, monkeypatch):
        """jit of vmap of grad, and the same example by example."""
        found = {}
        for implementation, switch in SWITCH.items():
            monkeypatch.setenv("KERAS_LN_KERNELS", switch)
            layer, x = small()
            assert runs(layer) == implementation

            def loss(x, layer=layer):
                return keras.ops.sum(layer(x, training=True) ** 3)

            batches = jax.numpy.stack([x, 2.0 * x])
            run = jax.jit(jax.vmap(jax.value_and_grad(loss)))
            found[implementation] = run(batches)
        close(found["cuda"], found["fused"], rtol=1e-4, atol=1e-4)


if BACKEND == "torch":
    import torch

    from keras_ln.backend.torch import trial

    # cuBLAS may choose other sums.
    SAME = {"rtol": 1e-4, "atol": 1e-4}

    def training_step(name="LNLSTM", units=40):
        """A function that gives the outputs and all gradients, and its x."""
        layer, x = small(name, units=units)
        assert runs(layer) == "cuda"
        weights = [v.value for v in layer.trainable_variables]
        x = x.detach().requires_grad_()
        with torch.no_grad():
            cotangent = torch.cos(layer(x))

        def run(layer=layer):
            y = layer(x, training=True)
            return y, *torch.autograd.grad(y, [x, *weights], cotangent)

        return run, x, layer

    def test_two_streams_at_once(precise, kernels):
        """As alone."""
        steps = [training_step(n)[0] for n in ("LNLSTM", "LNGRU")]
        alone = [step() for step in steps]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in steps]
        found = []
        for _ in range(20):
            for stream, step, expected in zip(
                streams, steps, alone, strict=True
            ):
                with torch.cuda.stream(stream):
                    found.append((step(), expected))
        torch.cuda.synchronize()
        for results, expected in found:
            close(results, expected, **SAME)

    @pytest.mark.parametrize("name", ON_CUDA)
    def test_a_captured_graph(name, precise, kernels):
        """Forward and backward, replayed with other sequences."""
        run, x, _ = training_step(name)
        replayed = trial.captured(run)
        with torch.no_grad():
            x.mul_(-1.5)
        results = replayed()
        torch.cuda.synchronize()
        close(results, run(), **SAME)

    def test_compiled_and_under_autocast(precise, kernels):
        run, x, layer = training_step()
        expected = run()
        torch._dynamo.reset()
        read = torch.compile(layer, backend="aot_eager", fullgraph=True)
        close(run(read), expected, **SAME)
        with torch.autocast(x.device.type, torch.bfloat16):
            found = run()
        for a, b in zip(found, expected, strict=True):
            assert norm_of_error(to_numpy(a.float()), to_numpy(b)) < 6e-2
