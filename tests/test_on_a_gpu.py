"""The recurrent layers on a GPU, at sizes and in precisions that users have.

JAX multiplies float32 in TF32 there, so other tests in float32 would need
JAX_DEFAULT_MATMUL_PRECISION=highest.
"""

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND, value_and_gradients
from descriptors import BY_NAME, SEQUENCE_LAYERS, randomize
from recurrence import Problem, compare

import keras_ln
from benchmarks import harness

pytestmark = pytest.mark.accelerator
B, T, D, U = 32, 50, 64, 256
# What the kernels for GPUs run, if keras-ln-kernels is installed.
ON_CUDA = ("LNGRU", "LNLSTM", "WNLSTM")
SWITCH = {"fused": "0", "cuda": "cuda"}


@pytest.fixture(autouse=True)
def gpu():
    assert harness.on_gpu(), "these tests need a GPU"


def norms_of_errors(found, right):
    """{name: relative error} of two structures of the same names."""
    return {
        name: np.linalg.norm(np.float64(found[name]) - right[name])
        / np.linalg.norm(right[name])
        for name in right
    }


# The matrix products round their factors to 11, 11 and 8 bits.
@pytest.mark.parametrize(
    "policy, tolerance",
    [("float32", 1e-2), ("mixed_float16", 1e-2), ("mixed_bfloat16", 6e-2)],
)
@pytest.mark.parametrize(
    "row, implementation",
    [
        *[(row, "fused") for row in SEQUENCE_LAYERS],
        *[(BY_NAME[name], "cuda") for name in ON_CUDA],
    ],
    ids=str,
)
def test_values_and_gradients(
    row, implementation, policy, tolerance, monkeypatch
):
    """Against the loop over the cell in float64."""
    monkeypatch.setenv("KERAS_LN_KERNELS", SWITCH[implementation])
    rng = np.random.default_rng(3)
    x = rng.normal(size=(B, T, D))
    cotangent = rng.normal(size=(B, T, U))
    mask = rng.random((B, T)) < 0.8
    results = []
    steps = {"max_steps": T} if row.batch_statistics else {}
    for dtype, use_fused in (("float64", False), (policy, "auto")):
        layer = row.make(
            **{"units": U, **steps},
            return_sequences=True,
            dtype=dtype,
            use_fused=use_fused,
        )
        layer.build(x.shape)
        randomize(layer)
        for weight in layer.weights if row.batch_statistics else ():
            # With gains of one it amplifies any rounding from step to step.
            if weight.name.endswith("gamma"):
                weight.assign(0.1 * weight)
        result = value_and_gradients(
            layer,
            x.astype(layer.compute_dtype if dtype == "float64" else "float32"),
            [cotangent.astype(layer.compute_dtype)],
            mask=mask,
            training=True,
            compiled=True,
        )
        results.append({"output": result.outputs[0], **result.gradients})
    assert keras_ln.ops.implementation(layer)[0] == implementation
    errors = norms_of_errors(results[1], results[0])
    print(row, policy, {n: float(f"{e:.1e}") for n, e in errors.items()})
    assert max(errors.values()) < tolerance, errors


@pytest.fixture
def precise(monkeypatch):
    """Products of float32 that are not rounded to TF32."""
    if BACKEND == "torch":
        import torch

        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        yield
    else:
        import jax

        with jax.default_matmul_precision("highest"):
            yield


@pytest.mark.parametrize("units", [3, 40, 256, 500])
@pytest.mark.parametrize("name", ON_CUDA)
def test_kernels_in_full_precision(name, units, precise, monkeypatch):
    """Of a few steps, against the loop in float64; and twice the same bits."""
    monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
    arguments = {"units": units, "return_sequences": True}
    problem = Problem(BY_NAME[name], arguments, shape=(19, 4, 5))
    layer = problem.layer(dtype="float32")
    assert keras_ln.ops.implementation(layer)[0] == "cuda"
    found, again = problem.run(layer), problem.run(layer)
    compare(again, found.outputs, found.gradients, {"rtol": 0, "atol": 0})
    right = problem.run(problem.layer(use_fused=False))
    errors = norms_of_errors(found.gradients, right.gradients)
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.parametrize("implementation", SWITCH)
def test_fit_and_predict(implementation, monkeypatch):
    """A model trains there."""
    monkeypatch.setenv("KERAS_LN_KERNELS", SWITCH[implementation])
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 20, 8)).astype("float32")
    y = x.sum((1, 2)) > 0
    model = keras.Sequential([keras_ln.LNLSTM(64), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    history = model.fit(x, y, epochs=10, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert np.isfinite(history["loss"]).all()
