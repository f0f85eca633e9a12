"""WeightNormalization: layers that it cannot be put around, and frozen ones."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import value_and_gradients
from descriptors import randomize
from tolerances import SAME_PROGRAM

from keras_ln import WeightNormalization

layers = keras.layers
D, U = 3, 2


def test_a_frozen_layer_stays_frozen_until_it_is_asked():
    dense = layers.Dense(U, trainable=False)
    layer = WeightNormalization(dense)
    layer.build((None, D))
    assert layer.trainable_weights == []
    layer.trainable = True
    assert len(layer.trainable_weights) == 3
    assert WeightNormalization(layers.Dense(U)).trainable


def message(layer, shape=None, **arguments):
    with pytest.raises(ValueError) as raised:
        wrapped = WeightNormalization(layer, **arguments)
        wrapped.build(shape)
    return str(raised.value)


def test_lora_and_quantised_layers():
    refused = "without quantisation or LoRA"
    with_lora = layers.Dense(4)
    with_lora.build((None, 4))
    with_lora.enable_lora(2)
    assert refused in message(with_lora)
    quantised = layers.Dense(4, dtype="int8_from_float32")
    assert refused in message(quantised, (None, 4))
    assert refused in message(layers.Dense(4, lora_rank=2))
    # After it was wrapped, too, and before anything has changed.
    layer = WeightNormalization(layers.Dense(4))
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layer])
    for change in (
        lambda: layer.layer.quantize("int8"),
        lambda: layer.layer.enable_lora(2),
    ):
        with pytest.raises(NotImplementedError, match=refused):
            change()
    x = np.ones((2, 4), "float32")
    expected = layer(x)
    with pytest.warns(UserWarning, match=refused):
        model.quantize("int8")
    close(to_numpy(layer(x)), to_numpy(expected), **SAME_PROGRAM)
    assert model.layers[0].quantization_mode == "int8"
    assert model(x).shape == (2, 4)
    assert layer.remove().quantize("int8") is None


if hasattr(keras, "RematScope"):  # since Keras 3.9

    def test_layers_that_run_again_in_the_backward_pass():
        x = np.random.default_rng(1).normal(size=(4, D)).astype("float32")
        dense = layers.Dense(U, activation="tanh")
        with keras.RematScope(mode="full"):
            again = WeightNormalization(dense)  # the whole of it
            assert "made in a RematScope" in message(layers.LSTM(U))
            nested = layers.Bidirectional(layers.LSTM(U))
        assert "outside of RematScope" in message(nested)
        with keras.RematScope(mode="activations"):
            activation = WeightNormalization(layers.Dense(U, activation="tanh"))
        once = WeightNormalization(layers.Dense(U, activation="tanh"))
        found = []
        for layer in (once, again, activation):
            layer.build(x.shape)
            randomize(layer, 5)
            found.append(value_and_gradients(layer, x))
        for result in found[1:]:
            close(result.gradients, found[0].gradients, **SAME_PROGRAM)
