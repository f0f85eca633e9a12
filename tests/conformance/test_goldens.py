"""The layers against the golden file, in float64."""

import golden_data
import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from golden_data import LAYER_NORMS, SEQUENCES
from tolerances import FLOAT64

import keras_ln


def test_every_case_is_compared():
    compared = {*SEQUENCES, *LAYER_NORMS, "weight_norm"}
    assert compared == set(golden_data.cases())


def sequence_layer(case, x, **extra):
    """The layer of a golden case with the case's weights."""
    name, arguments = SEQUENCES[case]
    weights = golden_data.weights(
        "bnlstm_train" if case.startswith("bnlstm") else case
    )
    choices = golden_data.choices(case)
    layer = getattr(keras_ln, name)(
        6,
        return_sequences=True,
        return_state=True,
        dtype="float64",
        # Any rates: what is drawn is given below.
        **{**arguments, **extra, **dict.fromkeys(choices, 0.5)},
    )
    layer.build(x.shape)
    if case == "bnlstm_infer_longer":
        weights |= golden_data.moving_statistics()
    for variable in layer.weights:
        if "moving_" not in variable.name or variable.name in weights:
            variable.assign(weights[variable.name])
    if choices:
        layer.cell.zoneouts = lambda shape, training: choices
    return layer


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("case", SEQUENCES)
def test_sequence_layer(case, use_fused):
    data = golden_data.case(case)
    layer = sequence_layer(case, data["x"], use_fused=use_fused)
    flags, after = golden_data.resets(case)
    result = value_and_gradients(
        layer,
        data["x"],
        [data.get("ct", np.ones_like(data["y"]))]
        + [None] * len(golden_data.final_states(case)),
        states=golden_data.states(case),
        mask=data.get("mask"),
        reset=flags,
        reset_states=after,
        training=case == "bnlstm_train",
    )
    expected = [data["y"], *golden_data.final_states(case)]
    for value, right in zip(result.outputs, expected, strict=True):
        assert value.dtype == "float64"
        close(value, right, **FLOAT64)
    if "ct" not in data:
        return
    right = {
        name.removeprefix("w_"): gradient
        for name, gradient in golden_data.with_prefix(case, "g").items()
    }
    for name, gradient in result.gradients.items():
        # The file has no gradients of the batch-normalised initial states.
        if name in right or not name.startswith("state"):
            close(gradient, right[name], name, **FLOAT64)
    assert len(result.gradients) >= len(layer.trainable_weights) + 1


# x of ln_offset stands at 1e4, where float64 rounds at 1e-12 of its variance;
# the gradient of x cancels that much.
@pytest.mark.parametrize("case", LAYER_NORMS)
def test_layer_normalization(case):
    data = golden_data.case(case)
    layer = keras_ln.LayerNormalization(dtype="float64")
    layer.build(data["x"].shape)
    layer.set_weights([data["gamma"], data["beta"]])
    check(layer, data, ("x", "gamma", "beta"))


def test_weight_norm_dense():
    data = golden_data.case("weight_norm")
    layer = keras_ln.WeightNormDense(4, dtype="float64")
    layer.build(data["x"].shape)
    names = {"kernel": "v", "g": "g", "bias": "b"}
    for variable in layer.weights:
        variable.assign(data[names[variable.name]])
    check(layer, data, ("x", *names), names)


def check(layer, data, sources, golden_names=None):
    """Value and gradients of a layer without time."""
    result = value_and_gradients(layer, data["x"], [data["ct"]])
    close(result.outputs[0], data["y"], **FLOAT64)
    assert set(result.gradients) == set(sources)
    for name, gradient in result.gradients.items():
        golden = (golden_names or {}).get(name, name)
        close(gradient, data[f"g{golden}"], name, **FLOAT64)
