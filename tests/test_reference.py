"""The oracles against the golden file: neither knows keras_ln."""

import golden_data
import numpy as np
import pytest
from reference import gradients
from reference.bn_lstm import bn_lstm
from reference.ln_gru import gru
from reference.ln_lstm import lstm
from reference.ln_simple_rnn import simple_rnn
from reference.norms import layer_norm, weight_norm_dense
from reference.wn_lstm import wn_lstm

# Both sides are float64 and 7 steps long; the largest gradient is of order
# 1e2, and each rounds at 1e-16 of that some hundred times.
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}

SEQUENCES = {
    "lstm_plain": (lstm, {}),
    "lstm_masked": (lstm, {}),
    "lstm_state_only": (lstm, {"normalize": ("state",)}),
    "lstm_kernel_recurrent": (lstm, {"normalize": ("kernel", "recurrent")}),
    "gru_plain": (gru, {}),
    "gru_masked": (gru, {}),
    "rnn_plain": (simple_rnn, {}),
    "rnn_masked": (simple_rnn, {}),
    "bnlstm_train": (bn_lstm, {"training": True}),
    "lstm_zoneout": (lstm, {}),
    "lstm_zoneout_masked": (lstm, {}),
    "gru_zoneout": (gru, {}),
    "gru_zoneout_masked": (gru, {}),
    "rnn_zoneout_masked": (simple_rnn, {}),
    "lstm_reset_masked": (lstm, {}),
    "gru_reset_backwards": (gru, {"go_backwards": True}),
    "rnn_reset_masked": (simple_rnn, {}),
    "wnlstm_reset_backwards": (wn_lstm, {"go_backwards": True}),
    "lstm_gate": (lstm, {"groups": "gate"}),
    "lstm_sum_reset": (lstm, {"normalize": ("sum", "state")}),
    "lstm_sum_gate": (
        lstm,
        {"normalize": ("sum", "state"), "groups": "gate"},
    ),
    "gru_gate_reset": (gru, {"groups": "gate"}),
    "gru_all": (gru, {"groups": "all"}),
}
OTHERS = {"bnlstm_infer_longer", "weight_norm"}
LAYER_NORMS = ("ln_small", "ln_offset", "ln_tiny")


def test_every_case_is_compared():
    compared = {*SEQUENCES, *OTHERS, *LAYER_NORMS}
    assert compared == set(golden_data.case_names())


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
    np.testing.assert_allclose(y, data["y"], **TOLERANCE)
    for value, expected in zip(
        final, golden_data.final_states(name), strict=True
    ):
        np.testing.assert_allclose(value, expected, **TOLERANCE)
    if rest:
        for site, (means, variances) in rest[0].items():
            for value, kind in ((means, "mean"), (variances, "var")):
                expected = data[f"batch_{kind}_{site}"]
                np.testing.assert_allclose(value, expected, **TOLERANCE)
    found = gradients.complex_step(
        lambda arrays: gradients.inner([outputs(arrays)[0]], [data["ct"]]),
        flat(name),
    )
    for key, gradient in found.items():
        np.testing.assert_allclose(
            gradient, data[f"g{key}"], err_msg=key, **TOLERANCE
        )


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
    np.testing.assert_allclose(y, data["y"], **TOLERANCE)
    np.testing.assert_allclose(final[0], data["final0"], **TOLERANCE)
    np.testing.assert_allclose(final[1], data["final1"], **TOLERANCE)


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
    np.testing.assert_allclose(function(arrays), data["y"], **tolerance)
    found = gradients.complex_step(
        lambda arrays: gradients.inner([function(arrays)], [data["ct"]]),
        arrays,
    )
    for name, gradient in found.items():
        np.testing.assert_allclose(
            gradient, data[f"g{name}"], err_msg=name, **tolerance
        )


# The next two say that the file can tell the oracles apart at all.
def test_goldens_feel_every_weight():
    rng = np.random.default_rng(1)
    for name, (oracle, options) in SEQUENCES.items():
        data, weights = golden_data.case(name), golden_data.weights(name)
        for key in weights:
            site = key.split("_")[0] if "gamma" in key or "beta" in key else ""
            sites = options.get("normalize", ("kernel", "recurrent", "state"))
            if name.startswith("lstm") and site and site not in sites:
                continue
            moved = weights[key] + 1e-3 * rng.normal(size=weights[key].shape)
            y = oracle(
                {**weights, key: moved},
                data["x"],
                golden_data.states(name),
                mask=data.get("mask"),
                **options,
            )[0]
            assert abs(y - data["y"]).max() > 1e-6, (name, key)


@pytest.mark.parametrize("option", ["normalize", "mask", "go_backwards"])
def test_goldens_feel_every_option(option):
    name = "lstm_masked"
    data = golden_data.case(name)
    wrong = {
        "normalize": {"normalize": ("kernel", "recurrent")},
        "mask": {"mask": None},
        "go_backwards": {"go_backwards": True},
    }[option]
    options = {"mask": data["mask"], **wrong}
    y, _ = lstm(
        golden_data.weights(name),
        data["x"],
        golden_data.states(name),
        **options,
    )
    assert abs(y - data["y"]).max() > 1e-3


def test_weight_normalised_lstm_is_the_plain_one_at_the_column_norms():
    name = "lstm_plain"
    data, weights = golden_data.case(name), golden_data.weights(name)
    x, states = data["x"], golden_data.states(name)
    normed = {
        "kernel": weights["kernel"] * 3.0,
        "kernel_g": np.linalg.norm(weights["kernel"], axis=0),
        "recurrent_kernel": weights["recurrent_kernel"] * 0.5,
        "recurrent_g": np.linalg.norm(weights["recurrent_kernel"], axis=0),
        "bias": weights["bias"],
    }
    y, _ = wn_lstm(normed, x, states)
    expected, _ = lstm(weights, x, states, normalize=())
    np.testing.assert_allclose(y, expected, **TOLERANCE)
