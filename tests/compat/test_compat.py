"""Weights and arguments of other libraries."""

import json

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import named_weights
from peer_goldens import GOLDEN, UNITS, check, load, part, read

import keras_ln
from keras_ln import compat

TFA = read(GOLDEN / "tensorflow_addons.npz")
HASTE = part(read(GOLDEN / "haste.npz")["haste"], "weight_")


def tfa_weights(case):
    weights = part(TFA[case], "weight")
    return [weights[str(k)] for k in range(len(weights))]


def config_of(case):
    return json.loads(str(TFA[case]["config"]))


def test_arguments_of_the_lstm():
    arguments = compat.tfa_lstm_arguments(config_of("lstm_masked"))
    layer = keras_ln.LNLSTM(**arguments)
    assert layer.carry_normalized_state
    assert layer.epsilon == 1e-5
    assert compat.tfa_lstm_arguments(config_of("lstm"))["epsilon"] == 1e-3
    assert isinstance(
        layer.kernel_initializer, keras.initializers.GlorotUniform
    )


def test_arguments_of_mixed_precision():
    # As Keras 2 writes the policy of a cell made under mixed precision.
    policy = {
        "module": "keras.mixed_precision",
        "class_name": "Policy",
        "config": {"name": "mixed_float16"},
        "registered_name": None,
    }
    config = config_of("lstm") | {"dtype": policy}
    layer = keras_ln.LNLSTM(**compat.tfa_lstm_arguments(config))
    assert layer.dtype_policy.name == "mixed_float16"
    x = np.ones((2, 3, 4), "float32")
    assert keras.backend.standardize_dtype(layer(x).dtype) == "float16"


def test_arguments_of_the_simple_rnn():
    config = config_of("simple_rnn") | {"bias_regularizer": "l2"}
    arguments = compat.tfa_simple_rnn_arguments(config)
    cell = keras_ln.LNSimpleRNNCell(**arguments)
    assert not cell.use_bias
    assert isinstance(cell.beta_regularizer, keras.regularizers.L2)
    assert cell.bias_regularizer is None


@pytest.mark.parametrize("name", ["tfa_lstm", "tfa_simple_rnn"])
def test_a_cell_is_no_config(name):
    with pytest.raises(TypeError, match="`config` must be a mapping"):
        getattr(compat, f"{name}_arguments")(keras_ln.LNLSTMCell(UNITS))


def test_the_activation_of_keras_2_is_saved(tmp_path):
    config = config_of("lstm_hard_sigmoid")
    layer = keras_ln.LNLSTM(**compat.tfa_lstm_arguments(config))
    model = keras.Sequential([keras.Input((None, 3)), layer])
    model.save(tmp_path / "model.keras")
    kept = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert kept.recurrent_activation is compat.keras_2_hard_sigmoid


@pytest.mark.parametrize("order", "<>")
def test_orders_of_bytes(order):
    """Old files may have the other one, which torch does not take."""
    weights = tfa_weights("lstm")
    cells = []
    for dtype in ("=f8", f"{order}f8"):
        cells.append(keras_ln.LNLSTMCell(UNITS, carry_normalized_state=True))
        compat.load_tfa_lstm(cells[-1], [w.astype(dtype) for w in weights])
    close(named_weights(cells[1]), named_weights(cells[0]), rtol=0, atol=0)


@pytest.mark.parametrize("case", [*TFA, "haste"])
def test_cells_load_what_layers_do(case):
    arrays = TFA.get(case, {})
    weights = HASTE if case == "haste" else part(arrays, "weight")
    layer = load(case, weights, arrays.get("config"))
    config = layer.cell.get_config()
    cell = type(layer.cell).from_config(config)
    if case == "haste":
        returned = compat.load_haste_lstm(cell, HASTE)
    elif case.startswith("lstm"):
        returned = compat.load_tfa_lstm(cell, tfa_weights(case))
    else:
        returned = compat.load_tfa_simple_rnn(cell, tfa_weights(case))
    assert returned is cell
    np.testing.assert_equal(named_weights(cell), named_weights(layer))


def test_wrong_settings():
    weights = tfa_weights("lstm")
    with pytest.raises(ValueError, match="Make.*carry_normalized_state=True"):
        compat.load_tfa_lstm(keras_ln.LNLSTM(UNITS), weights)
    carrying = keras_ln.LNLSTM(UNITS, center=False, carry_normalized_state=True)
    with pytest.raises(
        ValueError, match=r"`center`.*Received: .*kernel_beta \(16,\)"
    ):
        compat.load_tfa_lstm(carrying, weights)
    with pytest.raises(ValueError, match=r"center=False.*epsilon=0.001"):
        compat.load_haste_lstm(keras_ln.LNLSTM(UNITS, epsilon=1e-3), HASTE)
    with pytest.raises(
        ValueError, match="center=False.*Received: .*center=True"
    ):
        compat.load_haste_lstm(keras_ln.LNLSTM(UNITS), HASTE)
    with pytest.raises(ValueError, match=r"expected beta \(5,\)"):
        compat.load_tfa_simple_rnn(
            keras_ln.LNSimpleRNN(5), tfa_weights("simple_rnn")
        )


def test_a_layer_built_for_other_features():
    layer = keras_ln.LNLSTM(UNITS, center=False)
    layer.build((None, None, HASTE["kernel"].shape[0] + 2))
    before = layer.get_weights()
    with pytest.raises(ValueError, match="features for which it was built"):
        compat.load_haste_lstm(layer, HASTE)
    np.testing.assert_equal(before, layer.get_weights())


def test_a_stateful_layer_needs_its_batch_size():
    layer = keras_ln.LNLSTM(UNITS, center=False, stateful=True)
    features = HASTE["kernel"].shape[0]
    message = rf"stateful.*\.build\(\(batch, None, {features}\)\) first"
    with pytest.raises(ValueError, match=message):
        compat.load_haste_lstm(layer, HASTE)
    assert not layer.weights
    layer.build((2, None, features))
    assert compat.load_haste_lstm(layer, HASTE) is layer
    kernel = named_weights(layer)["recurrent_kernel"]
    assert kernel.shape == (UNITS, 4 * UNITS)


class Haste:
    """A layer of haste's, as far as it is asked."""

    def __init__(self, zoneout, weights=HASTE):
        self.zoneout, self.weights = zoneout, weights

    def state_dict(self):
        return self.weights


def test_zoneout_is_that_of_haste():
    for zoneout, arguments in (
        (0.1, {}),
        (0.1, {"zoneout": 0.2}),
        (0.1, {"zoneout": 0.1, "cell_zoneout": 0.1}),
        (0.0, {"zoneout": 0.1}),
    ):
        layer = keras_ln.LNLSTM(UNITS, center=False, **arguments)
        with pytest.raises(
            ValueError, match=f"zoneout={zoneout}.*Received: zoneout="
        ):
            compat.load_haste_lstm(layer, Haste(zoneout))
        assert not layer.built
        layer = keras_ln.LNLSTM(UNITS, center=False, zoneout=zoneout)
        assert compat.load_haste_lstm(layer, Haste(zoneout)) is layer
    with pytest.raises(ValueError, match="cell_zoneout=0.1"):
        compat.load_haste_lstm(
            keras_ln.LNLSTM(UNITS, center=False, cell_zoneout=0.1), HASTE
        )
    gru = keras_ln.LNGRU(UNITS, groups="all", center=False, use_bias=True)
    with pytest.raises(ValueError, match="zoneout=0.1.*Received: zoneout=0.0"):
        weights = part(CASES["haste_gru"], "weight_")
        compat.load_haste_gru(gru, Haste(0.1, weights))


def test_wrong_weights():
    layer = keras_ln.LNLSTM(UNITS, carry_normalized_state=True)
    with pytest.raises(ValueError, match="get_weights.*Received: 4"):
        compat.load_tfa_lstm(layer, tfa_weights("simple_rnn"))
    with pytest.raises(ValueError, match="get_weights.*Received: 9"):
        compat.load_tfa_simple_rnn(
            keras_ln.LNSimpleRNN(UNITS), tfa_weights("lstm")
        )
    layer = keras_ln.LNLSTM(UNITS, center=False)
    with pytest.raises(ValueError, match="gamma_h.*Received: gamma, kernel"):
        compat.load_haste_lstm(layer, {"kernel": 1, "gamma": 2})
    with pytest.raises(ValueError, match="state_dict.*Received: list"):
        compat.load_haste_lstm(layer, list(HASTE.values()))


FILES = ("tensorflow_addons", "haste", "haste_gru")
CASES = {}
for name in FILES:
    CASES |= read(GOLDEN / f"{name}.npz")


@pytest.mark.promise("weights of TensorFlow-Addons 0.23 and haste 0.5.5")
@pytest.mark.parametrize("use_fused", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, use_fused):
    check(case, CASES[case], use_fused)


@pytest.mark.parametrize("case", ["lstm", "simple_rnn", "haste", "haste_gru"])
def test_every_array_matters(case):
    """A weight that does not reach the output could be loaded wrongly."""
    for name in part(CASES[case], "weight"):
        arrays = dict(CASES[case])
        # Reversed, as a constant shift or scale may be normalised away.
        arrays[f"weight{name}"] = arrays[f"weight{name}"][..., ::-1]
        with pytest.raises(AssertionError, match="output 0"):
            check(case, arrays, use_fused=False)
