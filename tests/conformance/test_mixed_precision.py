"""Every layer in mixed precision: values, gradients, dtypes."""

import dataclasses

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import BY_NAME, LAYERS, SEQUENCE_LAYERS, B
from layer_calls import example
from pairwise import one_everywhere

import keras_ln

BACKEND = keras.backend.backend()
PROJECTED = [
    dataclasses.replace(BY_NAME[name], arguments={"units": 3, "projection": 12})
    for name in ("LNLSTM", "WNLSTM")
]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "row",
    [
        *one_everywhere(LAYERS, "LNLSTM", "BatchNormalization"),
        *(pytest.param(row, id=f"{row}-projected") for row in PROJECTED),
    ],
)
def test_gradients(row, policy):
    """The op and the loop, as far as each other from the layer in float64.

    They round to the compute dtype at different places.
    """
    # A norm over 3 units may meet 3 values that are nearly equal, and so
    # amplify what is rounded to 8 bits.
    units = {"units": 16} if "units" in row.arguments else {}
    x = np.random.default_rng(8).normal(size=(*row.input_shape[:-1], 8))
    first = row.make(**units)
    first.build(x.shape)
    sizes = keras.tree.flatten(getattr(first, "state_size", ()))
    states = [
        np.cos(np.arange(float(B * size)) + k).reshape(B, size)
        for k, size in enumerate(sizes[: row.state_count])
    ]
    weights = [
        w + 0.3 * np.sin(np.arange(w.size)).reshape(w.shape)
        for w in first.get_weights()
    ]

    def found(dtype, **options):
        layer = row.make(dtype=dtype, **units, **options)
        layer.build(x.shape)
        layer.set_weights(weights)
        result = value_and_gradients(
            layer,
            x.astype(layer.dtype),
            states=[s.astype(layer.dtype) for s in states] or None,
        )
        y = result.outputs[0]
        if BACKEND != "jax":  # whose stateless calls cast no inputs
            assert str(y.dtype) == dtype.removeprefix("mixed_")
        return {"y": y} | result.gradients

    ways = [{}]
    if row.is_recurrent:  # XLA compiles no loop here.
        ways = [{"use_fused": True}]
        ways += [{"use_fused": False}] * (BACKEND == "torch")
    right = found("float64", **ways[-1])
    unit = {"mixed_float16": 2.0**-11, "mixed_bfloat16": 2.0**-8}[policy]
    for way in ways:
        for name, value in found(policy, **way).items():
            assert name == "y" or value.dtype == "float32"
            error = np.linalg.norm(value.astype("float64") - right[name])
            assert error <= 20 * unit * np.linalg.norm(right[name]), name


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
def test_does_not_round_vectors(row, use_fused):
    """Not on the way into a call either: float16 ends at 65,504."""
    layer = row.make(dtype="mixed_float16", use_fused=use_fused)
    layer.build(row.input_shape)
    for weight in layer.trainable_weights:
        if weight.name.endswith("_gamma"):
            weight.assign(np.full(weight.shape, 1e6))
    output = keras.ops.convert_to_numpy(layer(example(row)))
    assert np.isfinite(output).all()


@pytest.mark.every_backend
@pytest.mark.parametrize("use_fused", [False, "auto"])
def test_small_terms_add_up_in_an_lstm(use_fused):
    """64 times c + 2**-13, which float16 rounds to c = 1."""
    layer = keras_ln.WNLSTM(
        1, dtype="mixed_float16", use_fused=use_fused, return_state=True
    )
    layer.build((1, 64, 1))
    # The gates i = 2**-13 and f = 1, and the candidate 1.
    layer.cell.bias.assign([-np.log(2.0**13 - 1), 20.0, 20.0, 0.0])
    for gain in (layer.cell.kernel_g, layer.cell.recurrent_g):
        gain.assign(np.zeros(gain.shape))
    states = [np.zeros((1, 1), "float16"), np.ones((1, 1), "float16")]
    *_, c = layer(np.zeros((1, 64, 1), "float16"), initial_state=states)
    close(keras.ops.convert_to_numpy(c), [[1.0 + 2.0**-7]], rtol=1e-3)
