"""The CPU extension behind the layers: when it runs, and how.

That their numbers are right, the suite's other tests see when they run with
--kernels.
"""

import importlib
import resource

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from layer_calls import LAYERS, made
from scripts import run_python

import keras_ln
from keras_ln import ops
from keras_ln.engine.cpu import _describe, native_names

x = np.ones((2, 4, 3), "float32")

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]


@pytest.mark.parametrize("name", LAYERS)
def test_cells_declare_what_the_kernels_know(name):
    """Both have a table of their own."""
    from keras_ln_kernels import CELLS

    cell = getattr(keras_ln, f"{name}Cell").equations
    kernels = CELLS[cell.native_name]
    names = native_names(cell)
    vectors = [names.get(v.name, v.name) for v in cell.vectors]
    assert sorted(vectors) == sorted(kernels.vectors)
    for vector in cell.vectors:
        of_units = vector.name.startswith("state_")
        assert vector.size == (1 if of_units else kernels.gates)
    assert cell.gates == kernels.gates
    assert len(cell.states) == len(kernels.states)


def test_an_option_of_a_newer_extension_is_off(monkeypatch):
    from keras_ln_kernels import call

    monkeypatch.setitem(call.OPTIONS, "invented", "float")
    spec, _ = made(keras_ln.LNLSTM(3)).as_problem()
    assert _describe(spec, frozenset(), frozenset()).options[-1] == 0.0


@pytest.mark.parametrize("name", LAYERS)
def test_inference_keeps_no_residuals(name, calls):
    layer = getattr(keras_ln, name)(3)
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            layer(x)
    else:
        layer(x)
    assert calls and not any("residuals" in call.results for call in calls)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"activation": "relu"}, "needs activation='tanh'"),
        ({"recurrent_activation": "linear"}, "recurrent_activation='sigmoid'"),
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


def test_no_rows(calls):
    layer = keras_ln.LNGRU(3, return_sequences=True)
    assert layer(x[:0]).shape == (0, 4, 3)
    assert BACKEND == "tensorflow" or not calls


@pytest.mark.parametrize(
    "shape, training, on_jax",
    [
        ((1, 1, 3), True, False),
        ((1, 1, 3), False, True),
        ((1, 2, 3), True, True),
        ((33, 1, 3), True, True),
    ],
)
def test_training_with_one_step_of_few_rows(shape, training, on_jax, calls):
    """XLA's program packs nothing, and is faster."""
    layer = keras_ln.LNLSTM(256)
    layer(np.ones(shape, "float32"), training=training)
    assert bool(calls) == (on_jax or BACKEND != "jax")


def test_kernels_can_be_turned_off(monkeypatch, calls):
    layer = keras_ln.LNLSTM(3)
    with ops.portable():
        assert "portable" in ops.implementation(layer)[1]["native"]
        layer(x)
    monkeypatch.setenv("KERAS_LN_KERNELS", " 0 ")
    chosen, reasons = ops.implementation(layer)
    assert chosen == "fused"
    assert reasons["native"] == "KERAS_LN_KERNELS=0 is set."
    layer(x)
    assert not calls


def test_a_switch_of_another_value(monkeypatch, calls):
    layer = keras_ln.LNLSTM(3)
    monkeypatch.setenv("KERAS_LN_KERNELS", "Off")
    told = "KERAS_LN_KERNELS must be 0, 1, cuda or verify: keras-ln-"
    with pytest.warns(UserWarning, match=told):
        reasons = ops.implementation(layer)[1]
    assert reasons["native"].endswith("Received: 'off'.")
    if BACKEND != "tensorflow":
        assert reasons["cuda"] == reasons["native"]
    layer(x)
    assert not calls
    for value in ("", "1", "CUDA"):
        monkeypatch.setenv("KERAS_LN_KERNELS", value)
        assert ops.implementation(layer)[0] == "native"


def test_fused_means_that_the_gradient_is_hand_written(calls):
    layer = keras_ln.LNLSTM(3, use_fused=True)
    assert ops.implementation(layer)[0] == "native"
    layer(x)
    assert calls


@pytest.mark.promise("do not depend on the number of threads")
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
        environment = dict.fromkeys(names, threads)
        environment["KERAS_LN_KERNELS_SHARING"] = sharing
        done = run_python("-c", code, path, **environment)
        assert done.returncode == 0, done.stderr
        results.append(np.load(path))
    for name in results[0].files:
        for other in results[1:]:
            np.testing.assert_array_equal(results[0][name], other[name])


def test_no_memory():
    """One unit of many features: packed, the kernel is 16 times as large."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        kind, message = tf.errors.ResourceExhaustedError, "out of memory"
    elif BACKEND == "jax":
        import jax

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
