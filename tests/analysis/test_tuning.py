"""Layers with choices in them: every choice gives the layer it names."""

import re
import sys

import keras
import keras_tuner
import numpy as np
import pytest

import keras_ln
from keras_ln import tuning


def _hp(**values):
    hp = keras_tuner.HyperParameters()
    hp.values = values
    return hp


def _space(hp):
    return {p.name: getattr(p, "values", None) for p in hp.space}


def _gains(layer):
    return {
        float(value)
        for weight in layer.weights
        if "gamma" in weight.name
        for value in keras.ops.convert_to_numpy(weight)
    }


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", keras.layers.Identity),
        ("layer", keras_ln.LayerNormalization),
        ("batch", keras_ln.BatchNormalization),
    ],
)
def test_normalizations(kind, expected):
    hp = _hp(norm=kind, norm_gain=0.5)
    kwargs = {} if kind == "none" else {"epsilon": 1e-3}
    layer = tuning.choose_normalization(hp, gains=(0.1, 0.5), **kwargs)
    assert type(layer) is expected
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    layer(x)
    if kind != "none":
        assert layer.epsilon == 1e-3 and _gains(layer) == {0.5}
    assert _space(hp) == {
        "norm": ["none", "layer", "batch"],
        "norm_gain": [0.1, 0.5],
    }
    tuning.choose_normalization(default := _hp(norm=kind))
    assert _space(default) == {**_space(hp), "norm_gain": [0.1, 1.0]}


RECURRENT = [
    ("lstm", "none", keras_ln.LNLSTM),
    ("lstm", "layer", keras_ln.LNLSTM),
    ("lstm", "gate", keras_ln.LNLSTM),
    ("lstm", "batch", keras_ln.BNLSTM),
    ("lstm", "weight", keras_ln.WNLSTM),
    ("gru", "none", keras_ln.LNGRU),
    ("gru", "layer", keras_ln.LNGRU),
    ("gru", "gate", keras_ln.LNGRU),
    ("rnn", "none", keras.layers.SimpleRNN),
    ("rnn", "layer", keras_ln.LNSimpleRNN),
]


@pytest.mark.parametrize(("cell", "kind", "expected"), RECURRENT)
def test_recurrent_layers(cell, kind, expected):
    hp = _hp(rnn_norm=kind, rnn_norm_gain=0.5, rnn_units=4)
    kinds = [k for c, k, _ in RECURRENT if c == cell]
    layer = tuning.choose_recurrent(
        hp,
        (2, 4),
        kinds,
        cell=cell,
        gains=(0.1, 0.5),
        name="rnn",
        max_steps=5,
        return_sequences=True,
    )
    assert type(layer) is expected
    assert getattr(layer, "max_steps", 5) == 5
    assert layer(keras.Input((None, 3))).shape == (None, None, 4)
    assert _gains(layer) == (set() if kind in ("none", "weight") else {0.5})
    if kind == "none" and cell != "rnn":
        assert layer.cell.normalize == ()
    groups = "gate" if kind == "gate" else "paper"
    assert getattr(layer, "groups", groups) == groups
    assert _space(hp) == {
        "rnn_norm": kinds,
        "rnn_norm_gain": [0.1, 0.5],
        "rnn_units": [2, 4],
    }


def test_the_gain_is_searched_only_where_there_is_one():
    hp = _hp(norm="weight")
    kinds = ("weight", "layer", "batch", "none")
    assert tuning.choose_kind(hp, kinds) == ("weight", None)
    (condition,) = next(p for p in hp.space if p.name == "norm_gain").conditions
    assert (condition.name, condition.values) == ("norm", ["layer", "batch"])
    hp = _hp()
    assert tuning.choose_kind(hp, ("weight", "none")) == ("weight", None)
    assert set(_space(hp)) == {"norm"}


KINDS = "`kinds` must"
WRONG = [
    (
        *("normalization", {"kinds": ("none", "group")}),
        rf"{KINDS} hold any of \('none', 'layer', 'batch'\). Received: "
        r"kinds=\['none', 'group'\]",
    ),
    ("normalization", {"kinds": ()}, f"{KINDS} be a sequence of at least one"),
    ("normalization", {"kinds": "layer"}, f"{KINDS} be a seq.*kinds='layer'"),
    ("recurrent", {"gamma_initializer": "ones"}, "`gains` chooses `gamma_in"),
    ("normalization", {"gamma_initializer": 1}, "`gains` chooses `gamma_init"),
    (
        *("recurrent", {"forget_steps": 9, "bias_initializer": "ones"}),
        "`forget_steps` chooses `bias_initializer`: .*='ones'",
    ),
    (
        *("recurrent", {"forget_steps": 9, "use_bias": False}),
        "`forget_steps` needs use_bias=True. Received: use_bias=False",
    ),
    ("recurrent", {"kinds": [["layer"]]}, rf"{KINDS} hold any.*\[\['layer'\]"),
    ("kind", {"kinds": ("layer",), "gains": ()}, "`gains` must be a sequence"),
    ("recurrent", {"cell": "mlp"}, r"`cell` must be one of \('lstm', 'gru', "),
    ("recurrent", {"cell": ["lstm"]}, r"`cell` must be .*cell=\['lstm'\]"),
    (
        *("recurrent", {"kinds": ("batch",), "cell": "gru"}),
        rf"{KINDS} hold any of \('none', 'layer', 'gate'\). Received: ",
    ),
    ("recurrent", {"units": ()}, "`units` must be a sequence of at least one"),
]


@pytest.mark.parametrize(("what", "given", "message"), WRONG)
def test_wrong_arguments_are_named(what, given, message):
    units = {"units": 3} if what == "recurrent" else {}
    with pytest.raises(ValueError, match=message):
        getattr(tuning, f"choose_{what}")(_hp(), **units | given)


class Trial:
    """As Optuna's FixedTrial; it records what is asked for."""

    def __init__(self, **values):
        self.values, self.asked = values, {}

    def suggest_categorical(self, name, choices):
        assert self.asked.setdefault(name, choices) == choices
        assert self.values[name] in choices
        return self.values[name]


@pytest.mark.parametrize(("cell", "kind", "expected"), RECURRENT)
def test_a_trial_builds_what_keras_tuner_does(cell, kind, expected):
    """The layer, and the names and values that are asked for."""
    kinds = [k for c, k, _ in RECURRENT if c == cell]
    has_gain = kind not in ("none", "weight")
    values = {"rnn_norm": kind, "rnn_units": 4}
    values |= {"rnn_norm_gain": 0.5} if has_gain else {}

    def choose(hp):
        arguments = {"cell": cell, "gains": (0.1, 0.5), "max_steps": 5}
        return tuning.choose_recurrent(
            hp, (2, 4), kinds, name="rnn", **arguments
        )

    hp, trial = _hp(**values), Trial(**values)
    layer, twin = choose(trial), choose(hp)
    assert type(layer) is expected
    ours, theirs = layer.get_config(), twin.get_config()
    assert {**ours, "name": ""} == {**theirs, "name": ""}
    space = _space(hp)
    assert trial.asked == {name: space[name] for name in values}


def test_a_trial_chooses_a_normalization():
    trial = Trial(norm="batch", norm_gain=0.1)
    layers = [tuning.choose_normalization(trial) for _ in range(2)]
    assert {type(x) for x in layers} == {keras_ln.BatchNormalization}
    assert trial.asked == {
        "norm": ["none", "layer", "batch"],
        "norm_gain": [0.1, 1.0],
    }


@pytest.mark.parametrize("hp", [{"norm": "layer"}, None, "layer"])
def test_another_hp_is_refused(hp):
    message = (
        "Argument `hp` must be KerasTuner's HyperParameters or a trial of "
        f"Optuna. Received: hp={hp!r}"
    )
    for choose in (
        lambda: tuning.choose_normalization(hp),
        lambda: tuning.choose_recurrent(hp, (2, 4)),
        lambda: tuning.choose_kind(hp, ("layer",)),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            choose()


def test_no_tuner_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_tuner", None)
    monkeypatch.delitem(sys.modules, "keras_ln.tuning")
    import keras_ln.tuning as again

    assert again is not tuning


@pytest.mark.parametrize(("cell", "kind", "expected"), RECURRENT)
def test_biases_that_keep_for_many_steps_are_a_choice(cell, kind, expected):
    def choose(**values):
        hp = _hp(recurrent=kind, **values)
        options = {"cell": cell, "max_steps": 5 if kind == "batch" else None}
        sizes = np.int64(4), np.int64(50)  # As a table gives them.
        layer = tuning.choose_recurrent(
            hp, sizes[0], [kind], forget_steps=sizes[1], **options
        )
        return hp, layer

    if cell == "rnn":
        with pytest.raises(ValueError, match="no gates.*forget_steps=.*50"):
            choose()
        return
    for wrong in (0, 1, 2.5):
        with pytest.raises(ValueError, match=f"Received: forget_steps={wrong}"):
            tuning.choose_recurrent(_hp(), 4, cell=cell, forget_steps=wrong)
    hp, usual = choose()
    assert _space(hp)["recurrent_forget_steps"] == [0, 50]
    _, layer = choose(recurrent_forget_steps=50)
    assert type(layer) is type(usual) is expected
    layer.build((2, 5, 3))
    start = layer.cell.bias_initializer
    assert (start.units, start.steps) == (4, 50)
    bias = keras.ops.convert_to_numpy(layer.cell.bias).reshape(-1, 4)
    keep = bias[1] if cell == "lstm" else -bias[0]
    assert 0 <= keep.min() and 1 < keep.max() <= np.log(49)
    assert not isinstance(usual.cell.bias_initializer, type(start))
