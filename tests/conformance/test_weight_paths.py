"""Paths of weights: fixed names, maps, files of 0.1, Orbax' checkpoints."""

import re
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import LAYERS, SEQUENCE_LAYERS, B, D, T, U, randomize

import keras_ln

# Written by version 0.1 with weights that `written_weight` gives.
MODEL_0_1 = Path(__file__).parents[1] / "golden" / "model_0_1.keras"


def model_of(row, **arguments):
    """A model whose layer is called `layer`, and every one the same."""
    inputs = keras.Input(row.input_shape[1:])
    layer = row.make(name="layer", **arguments)
    return keras.Sequential([inputs, layer], name="model")


def paths(layer):
    return [weight.path for weight in layer.weights]


@pytest.mark.parametrize("row", LAYERS, ids=str)
def test_a_second_instance_has_the_paths_of_the_first(row):
    assert paths(model_of(row)) == paths(model_of(row))


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_cell_has_a_fixed_name(row):
    model = model_of(row)
    (layer,) = model.layers
    # What Keras calls the first cell of a process, and so did version 0.1.
    expected = row.cell_name
    assert layer.cell.name == expected
    assert paths(model)[0] == f"model/layer/{expected}/kernel"
    assert type(layer).from_config(layer.get_config()).cell.name == expected


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_docstring_has_a_table_of_the_weights(row):
    """With the shapes of what the cell declares, in the order of creation."""
    cell = row.make().cell
    table = re.findall(r"\| `(\w+)` +\| \((.*?),?\) +\|", type(cell).__doc__)
    gates = cell.equations.gates
    columns = {gates: f"{gates}U", 1: "U"}
    expected = {
        "kernel": f"D, {columns[gates]}",
        "recurrent_kernel": f"U, {columns[gates]}",
        **{
            v.name: columns[v.size]
            for v in cell.equations.vectors
            if cell.has(v)
        },
    }
    in_text = [name for name in cell.weight_names if name in dict(table)]
    assert [name for name, _ in table] == in_text
    for name, shape in table:
        # Gains and moving statistics are no vectors of a step.
        assert shape == expected.get(name, shape), name
    assert {*expected} <= {*in_text}


@pytest.mark.parametrize(
    "layer_class, name",
    [
        (keras.layers.LSTM, "lstm_cell"),
        (keras_ln.LNLSTM, "lnlstm_cell"),
        (keras.layers.GRU, "gru_cell"),
        (keras_ln.LNGRU, "lngru_cell"),
    ],
)
def test_maps_by_path_match(layer_class, name):
    """Those of dtypes and of layouts, as with Keras' layers."""
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies[f"layer/{name}"] = "mixed_bfloat16"
    layouts = keras.distribution.LayoutMap(
        keras.distribution.DeviceMesh((1, 1), ["data", "units"], ["cpu:0"])
    )
    layouts[f"layer/{name}/recurrent_kernel"] = (None, "units")
    for _ in range(2):
        layer = layer_class(3, name="layer", dtype=policies)
        layer.build((None, T, D))
        assert layer.compute_dtype == "float32"
        assert layer.cell.compute_dtype == "bfloat16"
        matched = [
            weight.name for weight in layer.weights if layouts[weight.path]
        ]
        assert matched == ["recurrent_kernel"]


def written_weight(shape, start):
    """The values of a weight behind `start` numbers of others."""
    count = int(np.prod(shape))
    return 1.5 + np.cos(np.arange(start, start + count)).reshape(shape)


def check_weights(model):
    start = 0
    for weight in model.weights:
        close(
            weight, written_weight(weight.shape, start), weight.path, rtol=1e-6
        )
        start += int(np.prod(weight.shape))
    assert start == 552


def test_files_of_version_0_1_load(tmp_path):
    model = keras.saving.load_model(MODEL_0_1)
    check_weights(model)
    randomize(model)
    with zipfile.ZipFile(MODEL_0_1) as archive:
        archive.extract("model.weights.h5", tmp_path)
    model.load_weights(tmp_path / "model.weights.h5")
    check_weights(model)


class Filled(keras.initializers.Initializer):
    """A user's own, without `get_config`."""

    def __init__(self, value):
        self.value = value

    def __call__(self, shape, dtype=None):
        return keras.ops.full(shape, self.value, dtype=dtype)


def gammas_of(initializer):
    cell = keras_ln.LNLSTMCell(4, gamma_initializer=initializer)
    cell.build((None, D))
    return [
        to_numpy(weight) for weight in (cell.kernel_gamma, cell.recurrent_gamma)
    ]


def test_one_initializer_of_several_weights():
    """It stays as it is; without a seed the weights differ."""
    for gamma in gammas_of(Filled(0.25)):
        np.testing.assert_array_equal(gamma, 0.25)
    seeds = (None, keras.random.SeedGenerator(1))
    for seed in seeds:
        normal = keras.initializers.RandomNormal(1.0, 0.1, seed=seed)
        one, two = gammas_of(normal)
        assert (one != two).all(), seed
    one, two = gammas_of(keras.initializers.RandomNormal(1.0, 0.1, seed=1))
    np.testing.assert_array_equal(one, two)


@pytest.mark.peers
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_checkpoint_loads_into_a_second_model(row, tmp_path):
    def make():
        inputs = keras.Input(row.input_shape[1:])
        layer = row.make(name="layer")
        model = keras.Sequential([inputs, layer], name="model")
        model.compile("adam", "mse")
        return model

    saved, loaded = randomize(make()), randomize(make(), seed=1)
    x = np.random.default_rng(0).normal(size=row.input_shape)
    callback = keras.callbacks.OrbaxCheckpoint(
        tmp_path / "checkpoint", save_on_background=False
    )
    saved.fit(x, np.zeros((B, U)), verbose=0, callbacks=[callback])
    loaded.load_weights(tmp_path / "checkpoint")
    for new, old in zip(loaded.weights, saved.weights, strict=True):
        np.testing.assert_array_equal(
            new.numpy(), old.numpy(), err_msg=new.path
        )
