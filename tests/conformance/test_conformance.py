"""What Keras asks of every layer, driven by the table in descriptors.py."""

import copy
import inspect
import json

import descriptors
import keras
import numpy as np
import pytest
from arrays import close
from descriptors import (
    BY_NAME,
    ROWS,
    SEQUENCE_LAYERS,
    B,
    D,
    T,
    U,
    Wrapper,
    named_weights,
    randomize,
)
from keras.src import testing
from keras.src.backend.common.masking import get_keras_mask
from layer_calls import call, example, other_value
from tolerances import SAME_PROGRAM

import keras_ln

# Accepted so that a swap of class names suffices: ignored, or of one value.
IGNORED = {"reset_after", "use_cudnn"}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_config_holds_every_argument(row):
    default = row.make().get_config()
    named = {*inspect.signature(row.layer_class).parameters} - {"kwargs"}
    values = {name: other_value(row, name) for name in named - IGNORED}
    if "use_sum_bias" in values:  # which needs "sum"
        values["normalize"] = (*row.sites[2:], "sum")
    layer = row.layer_class(**values, name="given", trainable=False)
    config = json.loads(json.dumps(layer.get_config()))
    for name in values:
        assert name in config, name
        assert config[name] != default[name], name
    revived = row.layer_class.from_config(config)
    again = json.loads(json.dumps(revived.get_config()))
    assert again == config
    assert revived.name == "given" and not revived.trainable
    layer.build(row.input_shape)
    revived.build(row.input_shape)
    for new, old in zip(revived.weights, layer.weights, strict=True):
        assert (new.name, new.shape) == (old.name, old.shape)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_config_holds_keras_own_arguments(row):
    arguments = {"zero_output_for_mask": True, "dtype": "mixed_bfloat16"}
    # keras.layers.SimpleRNN has no such argument, so LNSimpleRNN needs none.
    if row.name != "LNSimpleRNN":
        arguments["use_cudnn"] = False
    layer = row.make(**arguments)
    revived = row.layer_class.from_config(layer.get_config())
    assert revived.zero_output_for_mask
    assert revived.dtype_policy.name == "mixed_bfloat16"
    assert revived.cell.dtype_policy.name == "mixed_bfloat16"
    assert revived.get_config() == layer.get_config()


@pytest.mark.every_backend
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_keras_layer_test(row):
    moving = [name for name in row.weights if "moving_" in name]
    states = row.cell_states()
    testing.TestCase().run_layer_test(
        row.layer_class,
        init_kwargs=row.constructor_arguments(),
        input_shape=row.input_shape,
        call_kwargs=None if states is None else {"states": states},
        expected_num_trainable_weights=len(row.weights) - len(moving),
        expected_num_non_trainable_weights=len(moving),
        # Keras' own checks pass a cell no states, and a dtype to a wrapper.
        run_training_check=not row.is_cell,
        run_mixed_precision_check=not row.is_cell
        and not isinstance(row, Wrapper),
    )


def model_of(row, **arguments):
    """A functional model of the layer, or of the cell in Keras' RNN."""
    layer = row.make(**arguments)
    shape = row.input_shape[1:]
    if row.is_cell:
        layer, shape = keras.layers.RNN(layer), (T, D)
    inputs = keras.Input(shape)
    return keras.Model(inputs, layer(inputs))


def forward(model, seed=11):
    """The model's inference on random inputs."""
    shape = (B, *model.input_shape[1:])
    x = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return keras.ops.convert_to_numpy(model(x, training=False))


@pytest.mark.every_backend
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_round_trips(row, tmp_path):
    model = randomize(model_of(row))
    expected = forward(model)
    fresh = forward(randomize(model_of(row), seed=1))
    assert abs(fresh - expected).max() > 1e-3  # the weights matter

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(forward(loaded), expected)

    model.save_weights(tmp_path / "model.weights.h5")
    other = model_of(row)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(forward(other), expected)

    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(forward(clone), expected)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_deepcopy_is_independent(row):
    x = example(row)
    unbuilt = copy.deepcopy(row.make())
    unbuilt.build(row.input_shape)
    assert {w.name for w in unbuilt.weights} == set(row.weights)

    layer = row.make()
    layer.build(row.input_shape)
    randomize(layer)
    expected = call(layer, row, x)
    twin = copy.deepcopy(layer)
    np.testing.assert_array_equal(call(twin, row, x), expected)
    randomize(twin, seed=1)
    assert abs(call(twin, row, x) - expected).max() > 1e-3
    np.testing.assert_array_equal(call(layer, row, x), expected)


@pytest.mark.every_backend
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_cell_and_layer_exchange_weights(row, tmp_path):
    ours = row.make()
    keras_loop = keras.layers.RNN(BY_NAME[row.cell].make())
    x = example(row)
    ours(x), keras_loop(x)
    randomize(ours)
    for source, target in ((ours, keras_loop), (keras_loop, ours)):
        # The same file as of a model, without the model's name for the layer.
        keras.saving.save_weights(source, tmp_path / "source.weights.h5")
        randomize(target, seed=2)
        keras.saving.load_weights(target, tmp_path / "source.weights.h5")
        for name, value in named_weights(source).items():
            np.testing.assert_array_equal(named_weights(target)[name], value)
        close(target(x), source(x), **SAME_PROGRAM)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_output_shapes_and_masks(row):
    for return_sequences in (False, True):
        layer = row.make(return_sequences=return_sequences, return_state=True)
        masked = keras.layers.Masking()(keras.Input((None, D)))
        outputs = layer(masked)
        shape = (None, None, U) if return_sequences else (None, U)
        expected = [shape] + [(None, U)] * row.state_count
        assert [output.shape for output in outputs] == expected
        mask = get_keras_mask(outputs[0])
        assert (mask is not None) == return_sequences


def public_layers():
    """Names in `keras_ln.__all__` that are layers or cells."""
    found = {}
    for name in keras_ln.__all__:
        value = getattr(keras_ln, name)
        if isinstance(value, type) and issubclass(value, keras.layers.Layer):
            found[name] = value
    return found


def test_every_public_layer_has_a_row():
    assert set(public_layers()) == set(descriptors.BY_NAME)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_row_tells_the_truth(row):
    layer = row.make()
    layer.build(row.input_shape)
    shapes = {weight.name: tuple(weight.shape) for weight in layer.weights}
    assert shapes == row.weights
    assert [weight.name for weight in layer.weights] == _order(row)
    if row.cell is not None:
        cell_class = descriptors.BY_NAME[row.cell].layer_class
        assert type(layer.cell) is cell_class
    if row.is_cell:
        assert layer.output_size == row.arguments["units"]


def _order(row):
    """Keras lists the weights that are trained before the others."""
    moving = [name for name in row.weights if "moving_" in name]
    return [name for name in row.weights if name not in moving] + moving
