"""WeightNormalization of recurrent layers: masks, states, wrappers, files.

Beside each model stands its twin of plain layers. Letters: T time, D input
features, U units."""

import keras
import numpy as np
from arrays import close, example, to_numpy
from layer_calls import stretch
from tolerances import FLOAT32, SAME_PROGRAM

from keras_ln import WeightNormalization

layers = keras.layers
T, D, U = 4, 3, 2


def tagger():
    """Words to tags: masks, around and inside Bidirectional, over time."""
    around = layers.Bidirectional(
        WeightNormalization(layers.LSTM(U, return_sequences=True))
    )
    inside = WeightNormalization(
        layers.Bidirectional(layers.LSTM(U, return_sequences=True))
    )
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(7, D, mask_zero=True),
            around,
            inside,
            layers.TimeDistributed(WeightNormalization(layers.Dense(3))),
            WeightNormalization(layers.TimeDistributed(layers.Dense(2))),
        ]
    )


def plain_tagger(model):
    """Its twin of plain layers, with the kernels of the model."""
    embedding, around, inside, over, within = model.layers
    twin = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            layers.Embedding(7, D, mask_zero=True),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            layers.TimeDistributed(layers.Dense(3)),
            layers.TimeDistributed(layers.Dense(2)),
        ]
    )
    parts = [
        embedding,
        around.forward_layer.remove(),
        around.backward_layer.remove(),
        inside.remove(),
        over.layer.remove(),
        within.remove(),
    ]
    twin.set_weights([w for part in parts for w in part.get_weights()])
    return twin


WORDS = np.array([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0], [1, 0, 3, 2, 1]])


def test_masks_bidirectional_time_distributed_and_files(tmp_path):
    model = tagger()
    names = [w.name for w in model.layers[2].weights]
    assert names[:4] == [
        *("forward_kernel_g", "forward_recurrent_g"),
        *("backward_kernel_g", "backward_recurrent_g"),
    ]
    assert model.layers[1].backward_layer.go_backwards
    assert not model.layers[1].forward_layer.go_backwards
    for part in model._flatten_layers():
        if isinstance(part, WeightNormalization):
            for variable in part._trainable_variables:
                variable.assign(1.5 * to_numpy(variable))
    expected = to_numpy(model(WORDS))
    twin = plain_tagger(model)
    close(twin(WORDS), expected, **FLOAT32)

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(loaded(WORDS)), expected)
    model.save_weights(tmp_path / "model.weights.h5")
    other = tagger()
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(to_numpy(other(WORDS)), expected)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(to_numpy(clone(WORDS)), expected)


def test_stacked_cells():
    """Each cell has gains of its own, and a new wrapper changes nothing."""
    cells = [layers.LSTMCell(U), layers.GRUCell(U + 1)]
    plain = layers.RNN(cells)
    x = example(2, T, D)
    expected = to_numpy(plain(x))
    layer = WeightNormalization(plain)
    close(layer(x), expected, **FLOAT32)
    gains = {
        w.name: tuple(w.shape) for w in layer.weights if w.name.endswith("_g")
    }
    assert gains == {
        "cell_0_kernel_g": (4 * U,),
        "cell_0_recurrent_g": (4 * U,),
        "cell_1_kernel_g": (3 * (U + 1),),
        "cell_1_recurrent_g": (3 * (U + 1),),
    }
    stretch(layer)
    assert abs(to_numpy(layer(x)) - expected).max() > 1e-3
    close(layer(x), layer.remove()(x), **FLOAT32)


def test_states_go_in_and_out():
    x, h, c = example(2, T, D), example(2, U, seed=2), example(2, U, seed=3)
    options = {"return_sequences": True, "return_state": True}
    layer = WeightNormalization(layers.LSTM(U, **options))
    layer.build(x.shape)
    stretch(layer)
    ours = layer(x, initial_state=[h, c])
    theirs = layer.remove()(x, initial_state=[h, c])
    assert len(ours) == 3
    close(ours, theirs, **SAME_PROGRAM)
    inputs = keras.Input((None, D))
    states = [keras.Input((U,)), keras.Input((U,))]
    outputs = layer(inputs, initial_state=states)
    model = keras.Model([inputs, *states], outputs)
    close(model([x, h, c]), theirs, **SAME_PROGRAM)
