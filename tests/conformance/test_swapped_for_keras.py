"""What works with a layer of Keras works with ours in its place."""

import inspect
import sys
import types

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import ROWS, SEQUENCE_LAYERS, B, D, T, U, randomize

import keras_ln
from keras_ln import ops

RECURRENT = [row for row in ROWS if row.is_recurrent or row.is_cell]
ARGUMENTS = {
    "units": U,
    "activation": "relu",
    "use_bias": False,
    "kernel_initializer": keras.initializers.HeNormal(seed=3),
    "bias_regularizer": "l2",
    "recurrent_constraint": "max_norm",
    "dropout": 0.25,
    "recurrent_dropout": 0.5,
    "seed": 7,
    "dtype": "mixed_bfloat16",
    "trainable": False,
    "name": "given",
}
OWN = {
    "LayerNormalization": {
        "axis": -2,
        "center": False,
        "gamma_regularizer": "l2",
    },
    "BatchNormalization": {"momentum": 0.5, "scale": False},
    "WeightNormDense": {"units": U, "activation": "relu"},
}


def example(row, dtype="float32"):
    rng = np.random.default_rng(4)
    return rng.integers(0, 3, size=row.input_shape).astype(dtype)


def make(row, **arguments):
    """The row's layer; the cell loop, as there XLA has nothing to compile."""
    loop = {"use_fused": False} if row.is_recurrent else {}
    return row.make(**loop, **arguments)


def output(layer, row, x):
    """The first output; of a cell, from a state of zeros."""
    states = row.cell_states()
    options = {} if states is None else {"states": states}
    return keras.tree.flatten(layer(x, **options))[0]


@pytest.mark.parametrize("row", RECURRENT, ids=str)
def test_places_of_arguments(row):
    """Those of Keras come first, in Keras' order."""
    theirs, ours = (
        [*inspect.signature(c).parameters] for c in (row.twin, row.layer_class)
    )
    assert ours[: len(theirs) - 1] == theirs[:-1]
    assert theirs[-1] == ours[-1] == "kwargs"


@pytest.mark.parametrize("row", [r for r in ROWS if r.twin], ids=str)
def test_from_the_config_of_a_layer_of_keras(row):
    config = row.twin(**OWN.get(row.name, ARGUMENTS)).get_config()
    given = dict(config)
    layer = row.layer_class.from_config(config)
    assert config == given
    # These have one value in all of ours.
    for name in ("rms_scaling", "quantization_config"):
        given.pop(name, None)
    ours = layer.get_config()
    assert {name: ours[name] for name in given} == given


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_whole_numbers(row, dtype):
    """They are cast to the compute dtype, as layers of Keras cast them."""
    x = example(row, dtype)
    layer = make(row)
    layer.build(row.input_shape)
    randomize(layer)
    np.testing.assert_array_equal(
        to_numpy(output(layer, row, x)),
        to_numpy(output(layer, row, x.astype("float32"))),
    )


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_from_config_hears_custom_objects(row):
    def twice(x):
        return 2 * x

    config = row.make(activation=twice).get_config()
    assert config["activation"]["config"] == "twice"
    # A ValueError in Keras 3.8.
    with pytest.raises((TypeError, ValueError), match="twice"):
        row.layer_class.from_config(config)
    layer = row.layer_class.from_config(config, custom_objects={"twice": twice})
    assert layer.activation is twice


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_call_that_fails_leaves_no_dropout_mask(row):
    layer = make(row, dropout=0.5, recurrent_dropout=0.5)
    wrong = np.ones((B, T + 1), bool)
    with pytest.raises(ValueError, match="`mask`"):
        layer(np.ones((B, T, D), "float32"), mask=wrong, training=True)
    # The masks of the first call would be of another batch size.
    x = np.ones((B + 1, T, D), "float32")
    assert layer(x, training=True).shape == (B + 1, U)


def subclass(row, **methods):
    """The layer with a cell of its own, in which methods are others."""
    cell = type("MyCell", (getattr(keras_ln, row.cell),), methods)
    return type("MyLayer", (row.layer_class,), {"cell_class": cell})


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_cell_with_a_call_of_its_own_is_refused(row):
    def call(self, inputs, states, training=False):
        return inputs, states

    with pytest.raises(
        ValueError, match="MyCell overrides `call`.*MyLayer.*keras.layers.RNN"
    ):
        subclass(row, call=call)(**row.arguments)


@pytest.mark.parametrize("zoneout", [0.0, 0.25])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_cell_with_a_step_of_its_own(row, zoneout):
    """It runs, in the cell loop; BNLSTM, whose loop does not, refuses it.

    Zoneout comes after it.
    """

    def step(self, projected, states, weights, recurrent_mask):
        return tuple(state + 1.0 for state in states)

    layer_class = subclass(row, step=step)
    if row.batch_statistics:
        with pytest.raises(ValueError, match="MyCell overrides `step`"):
            layer_class(**row.arguments)
        return
    layer = layer_class(**row.arguments, zoneout=zoneout, return_sequences=True)
    y = to_numpy(layer(np.ones((B, T, D), "float32")))
    expected = (1.0 - zoneout) * np.arange(1.0, T + 1)[:, None]
    np.testing.assert_array_equal(y, np.broadcast_to(expected, (B, T, U)))
    with pytest.raises(ValueError, match="MyCell overrides step"):
        layer_class(**row.arguments, use_fused=True)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_cell_with_the_step_of_its_parent_is_fused(row):
    layer = subclass(row)(**row.arguments, use_fused=True)
    assert ops.unsupported_reason(layer) is None


# As the tensors of tf_keras look, which is not installed.
KERAS_2_TENSOR = type(
    "KerasTensor", (), {"__module__": "tf_keras.src.engine.keras_tensor"}
)


@pytest.fixture
def tf_keras(monkeypatch):
    """A process that has imported it."""
    monkeypatch.setitem(sys.modules, "tf_keras", types.ModuleType("tf_keras"))


@pytest.mark.usefixtures("tf_keras")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_tensors_of_tf_keras(row):
    tensor, words = KERAS_2_TENSOR(), f"{row.name} .*Keras 3 .*tf_keras"
    with pytest.raises(TypeError, match=words):
        output(row.make(), row, tensor)
    if row.is_recurrent:
        with pytest.raises(TypeError, match=words):
            row.make()(example(row), initial_state=[tensor])
    with pytest.raises(TypeError, match="reestimate_statistics .*Keras 3"):
        keras_ln.reestimate_statistics(tensor, [])


@pytest.mark.parametrize(
    "row", [row for row in RECURRENT if row.is_cell], ids=str
)
def test_a_cell_in_the_rnn_of_tf_keras(row):
    """That one asks for states in this way."""
    with pytest.raises(TypeError, match=f"{row.name} .*Keras 3.*tf_keras"):
        row.make().get_initial_state(inputs=None, batch_size=B, dtype="float32")


def test_fresh_weights_are_those_of_keras():
    """From the same seed: initialisers, forget bias and all."""
    found = []
    for cls, options in (
        (keras.layers.LSTM, {}),
        (keras_ln.LNLSTM, {"normalize": (), "implementation": 1}),
    ):
        keras.utils.set_random_seed(5)
        layer = cls(U, **options)
        layer.build((B, T, D))
        found.append({w.name: w for w in layer.weights})
    close(found[1], found[0], rtol=0)
    assert [*found[0]] == [*found[1]]
