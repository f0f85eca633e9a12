"""The oracles against the golden file: neither knows keras_ln."""

import golden_data
import pytest
from arrays import close
from descriptors import BY_NAME
from golden_data import LAYER_NORMS
from reference import gradients
from reference.bn_lstm import bn_lstm
from reference.norms import layer_norm, weight_norm_dense

# Both sides are float64 and 7 steps long; the largest gradient is of order
# 1e2, and each rounds at 1e-16 of that some hundred times.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


def oracle_of(layer, arguments):
    """The oracle of a case, and its options."""
    if layer == "BNLSTM":
        return bn_lstm, {"training": True}
    return BY_NAME[layer].oracle, arguments


SEQUENCES = {
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


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name):
    oracle, options = SEQUENCES[name]
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
