"""The layers and the oracles against the golden file, in float64."""

import golden_data
import numpy as np
import pytest
from arrays import close
from backend_gradients import value_and_gradients
from descriptors import BY_NAME
from golden_data import LAYER_NORMS, SEQUENCES
from recurrence import SHARED
from reference import gradients
from reference.bn_lstm import bn_lstm
from reference.norms import layer_norm, weight_norm_dense
from tolerances import FLOAT64

import keras_ln


def test_every_case_is_compared():
    compared = {*SEQUENCES, *LAYER_NORMS, "weight_norm"}
    assert compared == set(golden_data.case_names())


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


# Both sides are float64 and 7 steps long; the largest gradient is of order
# 1e2, and each rounds at 1e-16 of that some hundred times.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


def oracle_of(layer, arguments):
    """The oracle of a case, and its options."""
    if layer == "BNLSTM":
        return bn_lstm, {"training": True}
    shared = {n: v for n, v in arguments.items() if n in SHARED}
    return BY_NAME[layer].oracle, shared


OF_ORACLES = {
    name: oracle_of(*golden_data.SEQUENCES[name])
    for name in golden_data.SEQUENCES
    if name != "bnlstm_infer_longer"  # has a test of its own
}


def flat(name):
    """x, states and weights of a case, under the names of its gradients."""
    data = golden_data.case(name)
    return {
        key: value
        for key, value in data.items()
        if f"g{key}" in data or key == "x"
    }


@pytest.mark.parametrize("name", OF_ORACLES)
def test_sequence(name):
    oracle, options = OF_ORACLES[name]
    data = golden_data.case(name)

    def outputs(arrays):
        weights = {
            key.removeprefix("w_"): value
            for key, value in {**data, **arrays}.items()
            if key.startswith("w_")
        }
        states, after = (
            [
                arrays.get(key, data[key])
                for key in (f"{kind}0", f"{kind}1")
                if key in data
            ]
            for kind in ("state", "reset")
        )
        return oracle(
            weights,
            arrays["x"],
            states,
            mask=data.get("mask"),
            reset=data.get("flags"),
            reset_state=after,
            **golden_data.choices(name),
            **options,
        )

    y, final, *rest = outputs(flat(name))
    close(y, data["y"], **TOLERANCE)
    close(final, golden_data.final_states(name), **TOLERANCE)
    if rest:
        for site, (means, variances) in rest[0].items():
            for value, kind in ((means, "mean"), (variances, "var")):
                expected = data[f"batch_{kind}_{site}"]
                close(value, expected, **TOLERANCE)
    found = gradients.complex_step(
        lambda arrays: gradients.inner([outputs(arrays)[0]], [data["ct"]]),
        flat(name),
    )
    for key, gradient in found.items():
        close(gradient, data[f"g{key}"], key, **TOLERANCE)


def test_inference_beyond_max_steps():
    data = golden_data.case("bnlstm_infer_longer")
    weights = golden_data.weights("bnlstm_train")
    weights |= golden_data.moving_statistics()
    y, final, *_ = bn_lstm(
        weights,
        data["x"],
        golden_data.states("bnlstm_infer_longer"),
        training=False,
    )
    close(y, data["y"], **TOLERANCE)
    close(final[0], data["final0"], **TOLERANCE)
    close(final[1], data["final1"], **TOLERANCE)


# x of ln_offset stands at 1e4: its mean rounds at 1e-12 of a unit variance.
@pytest.mark.parametrize("name", LAYER_NORMS)
def test_layer_norm(name):
    data = golden_data.case(name)
    scale = 1e4 if name == "ln_offset" else 1.0
    check_plain(
        data,
        lambda arrays: layer_norm(arrays["x"], arrays["gamma"], arrays["beta"]),
        ("x", "gamma", "beta"),
        scale,
    )


def test_weight_norm():
    check_plain(
        golden_data.case("weight_norm"),
        lambda arrays: weight_norm_dense(
            arrays["x"], arrays["v"], arrays["g"], arrays["b"]
        ),
        ("x", "v", "g", "b"),
    )


def check_plain(data, function, names, scale=1.0):
    """Value and gradients of one function of the named arrays."""
    tolerance = {key: value * scale for key, value in TOLERANCE.items()}
    arrays = {name: data[name] for name in names}
    close(function(arrays), data["y"], **tolerance)
    found = gradients.complex_step(
        lambda arrays: gradients.inner([function(arrays)], [data["ct"]]),
        arrays,
    )
    for name, gradient in found.items():
        close(gradient, data[f"g{name}"], name, **tolerance)
