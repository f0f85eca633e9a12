"""Every argument of the table refuses what it cannot be, by its name."""

import functools
import inspect
import re
import warnings
from collections import UserList

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from converted import model_of
from descriptors import (
    BY_NAME,
    CELLS,
    ROWS,
    SEQUENCE_LAYERS,
    B,
    D,
    T,
    U,
    randomize,
)
from layer_calls import call as run
from layer_calls import example, other_value
from refusals import refused, x

import keras_ln
from keras_ln import to_keras
from keras_ln.convert import fast_rnn
from keras_ln.layers.constructor_arguments import REFUSED, TFA_NAMES
from keras_ln.layers.rnn import base_cell
from keras_ln.ops import argument_table as table
from keras_ln.ops.argument_table import ARGUMENTS, accept

NAN = float("nan")
ERRORS = (TypeError, ValueError)
NO_OBJECT = [3, object(), {"class_name": "Nobody", "config": {}}, "nobody"]
# Words of the message, and what is refused: by what arguments may be,
BAD = {
    table.FLAG: ("be True or False", ["auto", None, 2, 0.5, NAN, (True,)]),
    table.RATE: (
        r"be a number in \[0, 1\)",
        [-0.1, 1, 1.0, 2, True, "0.1", NAN, None],
    ),
    table.SWITCH: ('be "auto", True', ["sometimes", 0, 1, np.False_, None]),
    table.ACTIVATION: ("be an activation", NO_OBJECT),
    table.INITIALIZER: ("be an initializer", NO_OBJECT),
    table.REGULARIZER: ("be a regularizer", NO_OBJECT),
    table.CONSTRAINT: ("be a constraint", NO_OBJECT),
}
# and by the names of those with a check of their own.
OWN = {
    "units": ("be a positive integer", [0, -1, 2.5, True, "4", None]),
    "max_steps": ("be a positive integer", [0, -1, 1.5, True]),
    "projection": ("be a positive integer", [0, -1, 1.5, True, "4"]),
    "axis": ("be an integer", [1.0, None, "1", [0, 1.0], True, [0, True]]),
    "momentum": (
        "be a number between 0 and 1",
        [-0.1, 1.1, 1.5, NAN, "most", None, True],
    ),
    "seed": ("be an integer", [0.5, "3", True, [3]]),
    "reset_after": (
        "be True: .* product, as Keras' GRU .* Leave it out and train again",
        [False, None, 1],
    ),
    "normalize": (
        "be a tuple of any of",
        [("kernel", "cell"), "kernel", ("gates",), None, ("",), (["state"],)],
    ),
    "epsilon": (
        "be a finite number >",
        [-1e-5, NAN, float("inf"), -float("inf"), 10**400, "1e-5", None, True],
    ),
    "groups": (
        "be one of 'paper', 'gate', 'all'",
        ["gates", None, 4, ("gate",)],
    ),
}
BAD |= {ARGUMENTS[name].kind: bad for name, bad in OWN.items()}
FUNCTIONS = [
    getattr(keras_ln.ops, f"{row.op}{step}")
    for row in SEQUENCE_LAYERS
    for step in ("", "_step")
    if hasattr(keras_ln.ops, f"{row.op}{step}")
]
# What may be a tensor is checked with the tensors.
TABLE = [name for name in ARGUMENTS if ARGUMENTS[name].kind is not None]


def make(row, **given):
    """The row's layer, with these arguments of its own."""
    return row.layer_class(**{**row.constructor_arguments(), **given})


def takes(public, name):
    return name in inspect.signature(public).parameters


def call(function, **options):
    """A call without tensors that fit, for errors that come before."""
    if takes(function, "learn"):
        options["learn"] = True
    return function(x(B, D), None, {}, **options)


def refuses(name, run):
    """`run(**{name: value})` refuses every wrong value, and says why."""
    words, values = BAD.get(ARGUMENTS[name].kind, ("be", []))
    for value in (object(), *values):  # No kind takes an object.
        received = re.escape(f"Received: {name}={value!r}")
        with refused(f"`{name}` must {words}", received, error=ERRORS):
            run(**{name: value})


@pytest.mark.parametrize("name", TABLE)
def test_wrong_values(name):
    rows = [row for row in ROWS if takes(row.layer_class, name)]
    functions = [
        function
        for function in FUNCTIONS
        if takes(function, name) and ARGUMENTS[name].kind is not table.RATE
    ]
    assert rows + functions
    for row in rows:
        refuses(name, lambda row=row, **given: make(row, **given))
    for function in functions:
        refuses(name, lambda f=function, **given: call(f, **given))


@pytest.mark.parametrize("name", ["LNLSTM", "WNLSTMCell"])
def test_a_projection_is_smaller_than_the_units(name):
    for size in (U, U + 1):
        with refused(f"less than the number of units, {U}", f"={size}"):
            make(BY_NAME[name], projection=size)
    with refused("`projection`: LNLSTM and WNLSTM have it"):
        make(BY_NAME["LNGRU"], projection=2)


@pytest.mark.every_backend
@pytest.mark.parametrize("row", CELLS, ids=str)
def test_an_assigned_argument_is_heeded_or_refused(row):
    """The cell's config makes a cell that computes the same."""
    refusals = set()
    for name in {*inspect.signature(row.layer_class).parameters} & {*TABLE}:
        cell = row.make()
        cell.build((B, D))
        randomize(cell)
        value = other_value(row, name)
        try:
            # A layer takes only one value of reset_after.
            wrong = name == "reset_after"
            setattr(cell, name, value if wrong else accept(name, value))
        except AttributeError as error:
            assert f"`{name}` cannot be changed" in str(error)
            refusals.add(name)
        cell.units = U  # What it has, as subclasses do.
        again = row.layer_class.from_config(cell.get_config())
        again.build((B, D))
        for new, old in zip(again.weights, cell.weights, strict=True):
            new.assign(old)
        found, expected = (run(one, row, example(row)) for one in (again, cell))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert refusals == {*cell.get_config()} & {
        *("units", "use_bias", "normalize", "center", "groups", "max_steps"),
        *("reset_after", "zoneout", "cell_zoneout", "use_sum_bias"),
        "projection",
    }


@pytest.mark.parametrize("cell", ["", "Cell"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_to_keras_drops_no_argument(kind, cell, monkeypatch):
    """What Keras lacks is refused, unless it belongs to a norm."""
    row = BY_NAME[f"LN{kind}{cell}"]
    more = {*inspect.signature(row.layer_class).parameters} - {
        *("kwargs", "normalize"),
        *inspect.signature(row.twin.__init__).parameters,
    }
    assert {"zoneout", "groups"} <= more
    for name in more:
        given = {"normalize": (), name: other_value(row, name)}
        if name == "carry_normalized_state":
            with refused('carry_normalized_state=True needs "state"'):
                row.make(**given)
            continue
        if name == "use_sum_bias":
            with refused('use_sum_bias=True needs "sum"'):
                row.make(**given)
            continue
        layer = row.make(**given)
        layer = keras.layers.RNN(layer) if cell else layer
        model = model_of(layer, shape=(T, D))
        if name in fast_rnn._OF_NORMS:
            x = example(BY_NAME[f"LN{kind}"])
            found, expected = (to_numpy(m(x)) for m in (to_keras(model), model))
            close(found, expected, rtol=1e-5, atol=1e-5)
            monkeypatch.setattr(fast_rnn, "_OF_NORMS", {"normalize"})
        with refused(f"to_keras cannot replace .* has {name}=", f"no `{name}`"):
            to_keras(model)
        monkeypatch.undo()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_an_epsilon_of_zero(row):
    """Where a variance is zero in ordinary use: the first h is zero."""
    if not takes(row.layer_class, "epsilon"):
        return
    for zero in (0, 0.0):
        if not row.is_recurrent and not row.is_cell:
            assert make(row, epsilon=zero).epsilon == 0.0
            continue
        with refused("`epsilon` must be", "> 0", f"epsilon={zero}"):
            make(row, epsilon=zero)


def test_what_is_kept():
    """Plain values of Python, which a config can hold."""
    given = {
        "units": (np.int64(3), 3),
        "seed": (np.int64(4), 4),
        "center": (np.True_, True),
        "return_state": (1, True),
        "dropout": (np.float64(0.5), 0.5),
        "epsilon": (1, 1.0),
        "normalize": (UserList(["state", "kernel"]), ("kernel", "state")),
    }
    layer = keras_ln.LNLSTM(
        **{name: value for name, (value, _) in given.items()}
    )
    config = layer.get_config()
    for name, (_, kept) in given.items():
        assert config[name] == kept and type(config[name]) is type(kept), name


@pytest.mark.parametrize("site", ["kernel", "recurrent"])
def test_sum_stands_in_place_of_both(site):
    with refused("`normalize`", '"sum" in place of', "Received"):
        make(BY_NAME["LNLSTM"], normalize=("sum", site))
    with refused(f"Received: normalize='{site}'. Write normalize=.'{site}',"):
        make(BY_NAME["LNLSTM"], normalize=site)
    layer = keras_ln.LayerNormalization(axis=UserList([-1, 1]))
    assert layer.get_config()["axis"] == [-1, 1]


def test_a_bias_of_a_sum_needs_the_sum():
    for name in ("LNLSTM", "LNGRU"):
        with refused("use_sum_bias=True", '"sum" in `normalize`'):
            make(BY_NAME[name], use_sum_bias=True)


@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_one_feature(name, tmp_path, monkeypatch):
    """A norm of its product keeps the sign; the warning comes once."""
    monkeypatch.setattr(base_cell, "_WARNED", set())
    layer_class = getattr(keras_ln, name)
    inputs = keras.Input((T, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keras.Model(inputs, layer_class(U, normalize=("recurrent",))(inputs))
        layer_class(U).build((B, T, 2))
    remedies = r"\[x, 1 - x\].*leave \"kernel\" out.*normalize=\('recurrent'"
    with pytest.warns(UserWarning, match=f"{name} normalises.*{remedies}"):
        model = keras.Model(inputs, layer_class(U)(inputs))
    model.save(tmp_path / "model.keras")
    plain = keras.Model(
        inputs, getattr(keras.layers, name.removeprefix("LN"))(U)(inputs)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer_class(U).build((B, T, 1))
        monkeypatch.setattr(base_cell, "_WARNED", set())
        keras.saving.load_model(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="a single feature"):
        keras_ln.with_layer_norm(plain)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_site_of_another_layer(row):
    if not takes(row.layer_class, "normalize"):
        return
    for site in {"kernel", "recurrent", "state", "sum"} - {*row.sites}:
        if site == "sum" and row.name.startswith(("LNLSTM", "LNGRU")):
            continue
        with refused("`normalize`", f"'{site}'"):
            make(row, normalize=[site])


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_arguments_of_others(row):
    """What has no meaning in a layer, and what TensorFlow-Addons calls ours."""
    for name in REFUSED:
        if not takes(row.layer_class, name):
            with refused(f"{row.name} .*`{name}`: ", "Leave it out"):
                make(row, **{name: 0.1})
    for name, ours in TFA_NAMES.items():
        with refused(row.name, f"`{name}`", f"Use `{ours}`", "compat"):
            make(row, **{name: 1e-3})


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_flag_of_keras_own(row):
    refuses("zero_output_for_mask", functools.partial(make, row))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_misspelled_argument(row):
    names = ["normalize", "return_sequences", "epsilon", "unbiased"]
    names = [name for name in names if takes(row.layer_class, name)]
    if row.name[-5:] != "ation":
        names.append("name")
    for name in names:
        slip = name[:-1]
        with refused(f"{row.name} has no .*`{slip}`. Did you mean `{name}`"):
            make(row, **{slip: 1})


def test_an_argument_like_no_other():
    """Keras' own words; and what it takes, ours take."""
    with refused("Unrecognized", "LNLSTM", "frobnicate"):
        keras_ln.LNLSTM(U, frobnicate=1)
    with refused(
        "`zero_output_for_masks`. Did you mean `zero_output_for_mask`"
    ):
        keras_ln.LNLSTM(U, zero_output_for_masks=True)
    keras_ln.BatchNormalization(renorm_momentum=0.5)
    with pytest.warns(UserWarning, match="input_shape"):
        keras_ln.LNLSTM(U, input_shape=(T, D))


@pytest.mark.parametrize("name", ["wn_lstm", "wn_lstm_step"])
def test_what_means_nothing_without_norms(name):
    function = getattr(keras_ln.ops, name)
    given = {"groups": "gate", "epsilon": 7.0, "carry_normalized_state": True}
    for option, value in given.items():
        with refused(
            f"ops.{name} has no argument `{option}`",
            f"{option}={value!r}",
            error=TypeError,
        ):
            call(function, **{option: value})


def not_dense(array):
    """The array in the framework's other layouts."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return [tf.sparse.from_dense(array), tf.RaggedTensor.from_tensor(array)]
    if keras.backend.backend() == "jax":
        from jax.experimental import sparse

        return [sparse.BCOO.fromdense(array)]
    import torch

    return [torch.tensor(array).to_sparse()]


# WeightNormalization leaves its inputs to the layer that it wraps.
@pytest.mark.every_backend
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name != "WeightNormalization"], ids=str
)
def test_tensors_that_are_not_dense(row):
    name = "sequences" if row.is_recurrent else "inputs"
    for training in {False, not row.is_cell}:
        for other in not_dense(example(row)):
            with refused(f"`{name}` must be a dense tensor", "Call "):
                run(make(row), row, other, training=training)
