"""The recurrent layers on a GPU, at sizes and in precisions that users have.

JAX multiplies float32 in TF32 there, so other tests in float32 would need
JAX_DEFAULT_MATMUL_PRECISION=highest.
"""

import keras
import numpy as np
import pytest
from backend_gradients import value_and_gradients
from descriptors import SEQUENCE_LAYERS, randomize

import keras_ln
from benchmarks import harness

pytestmark = pytest.mark.accelerator
B, T, D, U = 32, 50, 64, 256


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
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_values_and_gradients(row, policy, tolerance):
    """Against the loop over the cell in float64."""
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
    assert keras_ln.ops.implementation(layer)[0] == "fused"
    errors = norms_of_errors(results[1], results[0])
    print(row, policy, {n: float(f"{e:.1e}") for n, e in errors.items()})
    assert max(errors.values()) < tolerance, errors


def test_fit_and_predict():
    """A model trains there, and a saved one predicts the same."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(256, 20, 8)).astype("float32")
    y = x.sum((1, 2)) > 0
    model = keras.Sequential([keras_ln.LNLSTM(64), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    history = model.fit(x, y, epochs=10, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    assert np.isfinite(history["loss"]).all()
