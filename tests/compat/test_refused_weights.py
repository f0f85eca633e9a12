"""Weights that do not fit, or are no arrays, are refused before any is set."""

import ml_dtypes
import numpy as np
import pytest
from peer_goldens import UNITS

import keras_ln
from keras_ln import compat

G = 4 * UNITS
TF1_VECTORS = {
    f"{scope}/{kind}": UNITS
    for scope in ("input", "transform", "forget", "output", "state")
    for kind in ("gamma", "beta")
}
NORMS = {
    f"layernorm_{letter}.{kind}": UNITS if letter == "c" else G
    for letter in "ihc"
    for kind in ("weight", "bias")
}


def torch_shapes(rows):
    matrices = {"weight_ih_l0": (rows, 3), "weight_hh_l0": (rows, UNITS)}
    return matrices | {"bias_ih_l0": rows, "bias_hh_l0": rows}


def listed(load):
    return lambda layer, arrays: load(layer, list(arrays.values()))


# What loads, a layer that it fits, and the shapes of all that it loads.
LOADERS = {
    "load_tfa_lstm": (
        listed(compat.load_tfa_lstm),
        keras_ln.LNLSTM(UNITS, carry_normalized_state=True),
        {"kernel": (3, G), "recurrent_kernel": (UNITS, G), "bias": G}
        | {"kernel_gamma": G, "kernel_beta": G, "recurrent_gamma": G}
        | {"recurrent_beta": G, "state_gamma": UNITS, "state_beta": UNITS},
    ),
    "load_tfa_simple_rnn": (
        listed(compat.load_tfa_simple_rnn),
        keras_ln.LNSimpleRNN(UNITS),
        {"kernel": (3, UNITS), "recurrent_kernel": (UNITS, UNITS)}
        | {"beta": UNITS, "gamma": UNITS},
    ),
    "load_haste_lstm": (
        compat.load_haste_lstm,
        keras_ln.LNLSTM(UNITS, center=False),
        {"kernel": (3, G), "recurrent_kernel": (UNITS, G), "bias": G}
        | {"gamma": (2, G), "gamma_h": UNITS, "beta_h": UNITS},
    ),
    "load_haste_gru": (
        compat.load_haste_gru,
        keras_ln.LNGRU(UNITS, groups="all", center=False, use_bias=True),
        {"kernel": (3, 3 * UNITS), "recurrent_kernel": (UNITS, 3 * UNITS)}
        | {"bias": 3 * UNITS, "recurrent_bias": 3 * UNITS}
        | {"gamma": (2, 3 * UNITS)},
    ),
    "load_tf1_lstm": (
        compat.load_tf1_lstm,
        keras_ln.LNLSTM(
            UNITS,
            normalize=("sum", "state"),
            groups="gate",
            use_bias=False,
            carry_normalized_state=True,
            epsilon=1e-12,
        ),
        {"kernel": (3 + UNITS, G)} | TF1_VECTORS,
    ),
    "load_torch_lstm": (
        compat.load_torch_lstm,
        keras_ln.LNLSTM(UNITS, normalize=()),
        torch_shapes(G),
    ),
    "load_torch_gru": (
        compat.load_torch_gru,
        keras_ln.LNGRU(UNITS, normalize=(), use_bias=True),
        torch_shapes(3 * UNITS),
    ),
    "load_fastrnns_lstm": (
        compat.load_fastrnns_lstm,
        keras_ln.LNLSTM(UNITS, carry_normalized_state=True, use_bias=False),
        {"weight_ih": (G, 3), "weight_hh": (G, UNITS)} | NORMS,
    ),
    "load_torchaudio_lstm": (
        compat.load_torchaudio_lstm,
        keras_ln.LNLSTM(**compat.torchaudio_lstm_arguments(UNITS)),
        {"x2g.weight": (G, 3), "p2g.weight": (G, UNITS)}
        | {"g_norm.weight": G, "g_norm.bias": G}
        | {"c_norm.weight": UNITS, "c_norm.bias": UNITS},
    ),
    "load_icefall_lstm": (
        compat.load_icefall_lstm,
        keras_ln.LNLSTM(**compat.icefall_lstm_arguments(UNITS)),
        {"weight_ih": (G, 3), "weight_hh": (G, UNITS)}
        | {"bias_ih": G, "bias_hh": G}
        | {
            f"layernorm_{gate}.{kind}": UNITS
            for gate in ("i", "f", "cx", "o", "cy")
            for kind in ("weight", "bias")
        },
    ),
    "load_dreamer_gru": (
        compat.load_dreamer_gru,
        keras_ln.LNGRU(**compat.dreamer_gru_arguments(UNITS)),
        {"linear.weight": (3 * UNITS, 3 + UNITS)}
        | {"layer_norm.weight": 3 * UNITS, "layer_norm.bias": 3 * UNITS},
    ),
}
BAD_DTYPES = ("int32", "int64", "bool", "complex64", "complex128", "U9", "O")


@pytest.mark.parametrize(
    "name", ["load_tfa_lstm", "load_haste_lstm", "load_fastrnns_lstm"]
)
def test_gates_with_a_mean_of_their_own_are_refused(name):
    """Their gammas would fit."""
    load, layer, shapes = LOADERS[name]
    arrays = {key: np.ones(shape) for key, shape in shapes.items()}
    config = layer.get_config()
    load(type(layer).from_config(config | {"groups": "all"}), arrays)
    other = type(layer).from_config(config | {"groups": "gate"})
    with pytest.raises(ValueError, match="groups='all'.*groups='gate'"):
        load(other, arrays)
    assert not other.built


def test_every_loader_is_tried():
    assert {n for n in compat.__all__ if n.startswith("load_")} == {*LOADERS}


@pytest.mark.promise("weights of another library have another dtype or shape")
@pytest.mark.parametrize("name", LOADERS)
def test_weights_that_are_refused_change_nothing(name):
    """Whichever it is, of whatever dtype or shape it is."""
    load, layer, shapes = LOADERS[name]
    rng = np.random.default_rng(0)
    right = {n: rng.normal(size=shape) for n, shape in shapes.items()}
    fresh = type(layer).from_config(layer.get_config())
    layer.build((None, None, 3))
    before = layer.get_weights()
    for own, array in right.items():
        wrong = [array.astype(dtype) for dtype in BAD_DTYPES]
        wrong += [None, "text", [[1.0], [1.0, 2.0]]]
        shape = array.shape
        bad_shapes = {(), (0,), (1,), (*shape[:-1], shape[-1] + 1)}
        bad_shapes |= {(*shape, 1), (1, *shape), (*shape[:-1], 0), shape[1:]}
        for given in wrong:
            message = (
                rf"`weights` must hold {own}\b.* as an array of float16, "
                r"bfloat16, float32 or float64\. Received: "
            )
            for each in (layer, fresh):
                with pytest.raises(ValueError, match=message):
                    load(each, right | {own: given})
        for size in bad_shapes:
            with pytest.raises(ValueError, match="`weights` must"):
                load(layer, right | {own: np.ones(size)})
    assert not fresh.built
    for old, new in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    # Halves are loaded as what they stand for.
    for dtype in ("float16", ml_dtypes.bfloat16):
        halves = {n: array.astype(dtype) for n, array in right.items()}
        load(layer, halves)
        load(fresh, {n: a.astype("float32") for n, a in halves.items()})
        for one, two in zip(
            layer.get_weights(), fresh.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(one, two)


def test_weights_that_are_no_list():
    layer = keras_ln.LNLSTM(UNITS, carry_normalized_state=True)
    with pytest.raises(ValueError, match="9 arrays, or 8 .*Received: NoneType"):
        compat.load_tfa_lstm(layer, None)
    with pytest.raises(ValueError, match="`forget_bias` must be a finite"):
        load, layer, shapes = LOADERS["load_tf1_lstm"]
        load(layer, dict.fromkeys(shapes, 0.0), forget_bias="1")
