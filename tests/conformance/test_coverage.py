"""No public layer without tests: each has a row in the table."""

import descriptors
import golden_data
import keras
import pytest
from descriptors import ROWS, SEQUENCE_LAYERS

import keras_ln
from keras_ln import ops


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


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_row_of_a_recurrent_layer_is_complete(row):
    """What tests take from it."""
    assert row.oracle and row.twin and row.cell_name and row.options
    assert row.op in ops.__all__
    cell = descriptors.BY_NAME[row.cell]
    assert (cell.op, cell.oracle, cell.weights) == (
        *(row.op, row.oracle, row.weights),
    )
    with_goldens = {name for name, _ in golden_data.SEQUENCES.values()}
    assert row.name in with_goldens


def _order(row):
    """Keras lists the weights that are trained before the others."""
    moving = [name for name in row.weights if "moving_" in name]
    return [name for name in row.weights if name not in moving] + moving
