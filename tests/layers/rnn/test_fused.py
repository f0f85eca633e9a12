"""The fused op against the cell loop: they may differ by rounding alone."""

import keras
import numpy as np
import pytest
from backend_gradients import value_and_gradients
from descriptors import SEQUENCE_LAYERS, T

import keras_ln


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_in_low_precision(row, dtype):
    """Fused and loop round to the compute dtype, at different places.

    Both are as far from the same layer in float64.
    """
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3, T, 8)).astype("float32")
    found, weights = [], None
    for use_fused, policy in (
        (True, f"mixed_{dtype}"),
        (False, f"mixed_{dtype}"),
        (False, "float64"),
    ):
        layer = row.make(units=16, use_fused=use_fused, dtype=policy)
        layer.build(x.shape)
        if weights is None:
            weights = [
                weight
                + 0.3 * np.sin(np.arange(weight.size)).reshape(weight.shape)
                for weight in layer.get_weights()
            ]
        layer.set_weights(weights)
        result = value_and_gradients(layer, x.astype(layer.dtype))
        assert str(result.outputs[0].dtype) == policy.removeprefix("mixed_")
        found.append({"y": result.outputs[0], **result.gradients})
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    for k, other in ((0, 1), (0, 2), (1, 2)):
        for name, right in found[other].items():
            right = right.astype("float64")
            error = np.linalg.norm(found[k][name].astype("float64") - right)
            assert error <= 20 * unit * np.linalg.norm(right), name


def test_gains_are_not_rounded_to_the_compute_dtype():
    """WNLSTM is LNLSTM without sites on kernels normalised in float32."""
    rng = np.random.default_rng(5)
    layer = keras_ln.WNLSTM(16, dtype="mixed_bfloat16")
    layer.build((4, 3, 8))
    weights = {w.name: w.numpy() for w in layer.weights}
    for name in ("kernel_g", "recurrent_g"):
        weights[name] = rng.uniform(1.0, 2.0, weights[name].shape)
    for weight in layer.weights:
        weight.assign(weights[weight.name])
    x = rng.normal(size=(4, 3, 8)).astype("float32")

    def plain(gains):
        twin = keras_ln.LNLSTM(16, normalize=(), dtype="mixed_bfloat16")
        twin.build(x.shape)
        for weight in twin.weights:
            value = weights[weight.name]
            if weight.name.endswith("kernel"):
                g = weights[weight.name.removesuffix("_kernel") + "_g"]
                value = gains(g) * value / np.linalg.norm(value, axis=0)
            weight.assign(value)
        return keras.ops.convert_to_numpy(twin(x)).astype("float32")

    def rounded(g):
        return keras.ops.convert_to_numpy(
            keras.ops.cast(keras.ops.cast(g, "bfloat16"), "float32")
        )

    received = keras.ops.convert_to_numpy(layer(x)).astype("float32")
    right, wrong = plain(lambda g: g), plain(rounded)
    assert 5 * abs(received - right).mean() < abs(wrong - right).mean()
