"""What the tests of with_layer_norm share.

Letters: B batch, T time, D input features, U units.
"""

import keras
import pytest
from arrays import close, example, to_numpy

from keras_ln import with_layer_norm

B, T, D, U = 4, 5, 3, 4

# What the clone's predictions may differ by: two programs in float32.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def randomize(model):
    """Gives every weight its own values, so that none can be forgotten."""
    for k, weight in enumerate(model.weights):
        weight.assign(0.5 * example(*weight.shape, seed=k))


def predictions(model, x):
    return [to_numpy(y) for y in keras.tree.flatten(model(x, training=False))]


def assert_same(model, clone, x):
    found, expected = predictions(clone, x), predictions(model, x)
    close(found, expected, **CLOSE)


def model_of(*parts, shape=(T, D)):
    return keras.Sequential([keras.Input(shape), *parts], name="model")


def message(model, *arguments, **options):
    with pytest.raises(ValueError) as raised:
        with_layer_norm(model, *arguments, **options)
    return str(raised.value)


def kinds_in(model):
    return {type(part).__name__ for part in model._flatten_layers()}
