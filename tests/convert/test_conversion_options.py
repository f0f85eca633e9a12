"""with_layer_norm: what is copied, what is asked for, and what is refused."""

import keras
import numpy as np
import pytest
from arrays import example, to_numpy
from converted import (
    CLOSE,
    B,
    D,
    T,
    U,
    assert_same,
    kinds_in,
    message,
    model_of,
)

import keras_ln
from keras_ln import with_layer_norm

layers = keras.layers


def test_the_biases_of_a_normalised_gru():
    """Where a beta does what the recurrent bias did, it takes its place."""
    model = model_of(layers.GRU(U))
    theirs = model.layers[0].cell
    theirs.bias.assign(example(2, 3 * U))
    turned = example(2, 3 * U) * np.repeat([-1, 1, 1], U)
    for normalize, center in (None, "recurrent_beta"), (["kernel"], None):
        ours = with_layer_norm(model, normalize).layers[0].cell
        np.testing.assert_array_equal(to_numpy(ours.bias), turned[0])
        inside = ours.recurrent_beta if center else ours.recurrent_bias
        np.testing.assert_array_equal(to_numpy(inside), turned[1])


@pytest.mark.parametrize(
    "asked, lstm, gru, simple",
    [
        (None, ("kernel", "recurrent", "state"), ("kernel", "recurrent"), True),
        (("state", "kernel"), ("kernel", "state"), ("kernel",), True),
        (["state"], ("state",), (), False),
    ],
)
def test_a_layer_takes_the_sites_that_it_has(asked, lstm, gru, simple):
    model = keras.Sequential(
        [
            keras.Input((T, D)),
            layers.LSTM(U, return_sequences=True),
            layers.GRU(U, return_sequences=True),
            layers.SimpleRNN(U),
        ]
    )
    ours = with_layer_norm(model, asked).layers
    assert ours[0].normalize == lstm
    assert ours[1].normalize == gru
    assert isinstance(ours[2], keras_ln.LNSimpleRNN) == simple


def test_without_copied_weights():
    model = keras.Sequential([layers.LSTM(U), layers.Dense(2)])
    clone = with_layer_norm(model, copy_weights=False)  # not built either
    assert not clone.built
    assert clone(example(B, T, D)).shape == (B, 2)
    model(example(B, T, D))
    clone = with_layer_norm(model, copy_weights=False)
    kernels = [m.layers[1].kernel for m in (clone, model)]
    assert abs(to_numpy(kernels[0]) - to_numpy(kernels[1])).max() > 1e-3
    # Built by a call, without an Input.
    assert_same(model, with_layer_norm(model, ()), example(B, T, D))


class Subclassed(keras.Model):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.lstm = layers.LSTM(U, name="within")

    def call(self, x):
        return self.lstm(x)


@keras.saving.register_keras_serializable(package="tests")
class Derived(layers.LSTM):
    pass


@keras.saving.register_keras_serializable(package="tests")
class Cell(layers.Layer):
    state_size = U

    def call(self, inputs, states):
        return states[0], states


@keras.saving.register_keras_serializable(package="tests")
class Own(keras.Sequential):
    pass


class Closed(layers.Layer):
    """Its constructor's argument is not in its config."""

    def __init__(self, function, **arguments):
        super().__init__(**arguments)
        self.function = function

    def call(self, x):
        return self.function(x)


def test_what_is_no_model_of_layers():
    takes = "takes functional and Sequential models"
    assert takes in message(Subclassed(name="mine"))
    assert "'mine' of class Subclassed" in message(Subclassed(name="mine"))
    remedy = "In others write keras_ln.LNLSTM for LSTM, and so on."
    assert remedy in message(Subclassed(name="mine"))
    for layer, ours in (
        (layers.LSTM(U), "LNLSTM"),
        (layers.GRUCell(U), "LNGRUCell"),
    ):
        advice = f"use keras_ln.{ours}.from_config(layer.get_config())."
        assert takes in message(layer) and advice in message(layer)
    assert "from_config" not in message(layers.Dense(U))
    inside = "Put the layer into a model: keras.Sequential([keras.Input(...), "
    assert inside in message(layers.Bidirectional(layers.LSTM(U)))
    assert takes in message(None)
    own = Own([keras.Input((T, D)), layers.LSTM(U)], name="own")
    assert "a class of its own from layers. Received: 'own'" in message(own)
    assert "there are none yet" in message(keras.Sequential([layers.LSTM(U)]))
    for sites in (("cell",), (["cell"],)):
        assert "`normalize` must be a tuple of any of" in message(
            model_of(layers.LSTM(U)), sites
        )
    with pytest.raises(ValueError, match="`copy_weights` must be True or"):
        with_layer_norm(model_of(layers.LSTM(U)), copy_weights="no")


def test_layers_that_have_no_counterpart():
    derived = model_of(Derived(U, name="mine"))
    assert "derived from Keras' recurrent layers" in message(derived)
    assert "'mine' of class Derived" in message(derived)
    cell = model_of(layers.RNN(Cell(name="mine")))
    assert "knows the cells of LSTM, GRU and SimpleRNN" in message(cell)
    assert "'mine' of class Cell" in message(cell)
    inside = model_of(Subclassed(name="mine"))
    assert "layers inside of a layer of another class" in message(inside)
    assert "with 'within' inside" in message(inside)
    closed = model_of(Closed(lambda x: x, name="mine"))
    assert "cannot clone the layer 'mine' of class Closed" in message(closed)


def test_what_is_frozen_stays_frozen():
    """Half of a GRU's bias too, and a cell with all that it has."""
    model = model_of(layers.GRU(U))
    cell = model.layers[0].cell
    cell.bias.trainable = False
    clone = with_layer_norm(model).layers[0].cell
    frozen = {w.name for w in clone.weights if not w.trainable}
    assert frozen == {"bias", "recurrent_beta"}
    cell.bias.trainable = True
    cell.trainable = False
    assert not with_layer_norm(model).trainable_weights


def test_gru_that_cannot_be_expressed():
    before = model_of(layers.GRU(U, reset_after=False, name="mine"))
    assert "needs reset_after=True" in message(before)
    assert "Received: 'mine' with reset_after=False. Build" in message(before)
    gate = model_of(layers.GRU(U, recurrent_activation="relu", name="mine"))
    assert "needs f(-z) = 1 - f(z)" in message(gate)
    clone = with_layer_norm(gate, copy_weights=False)
    assert type(clone.layers[0]) is keras_ln.LNGRU


@pytest.mark.parametrize("kind", ["kernel", "recurrent", "bias"])
def test_constraints_on_a_gru(kind):
    """The columns of the update gate change their signs."""
    name = f"{kind}_constraint"
    signs = model_of(layers.GRU(U, **{name: "non_neg"}, name="mine"))
    found = message(signs)
    assert "needs constraints with f(-w) = -f(w)" in found
    assert f"Received: 'mine' with {name}=<" in found
    cells = model_of(layers.RNN(layers.GRUCell(U, **{name: "non_neg"})))
    assert f"{name}=<" in message(cells)
    clone = with_layer_norm(signs, copy_weights=False)
    assert type(clone.layers[0]) is keras_ln.LNGRU
    for other in ("max_norm", "unit_norm", "min_max_norm"):
        with_layer_norm(model_of(layers.GRU(U, **{name: other})))
    with_layer_norm(model_of(layers.LSTM(U, **{name: "non_neg"})))


@pytest.mark.parametrize("copy_weights", [False, True])
def test_nothing_to_replace(copy_weights):
    model = keras.Sequential(
        [keras.Input((T, D)), keras_ln.LNLSTM(U), layers.Dense(1)], name="mine"
    )
    with pytest.warns(UserWarning, match="no LSTM, GRU or SimpleRNN.*'mine'"):
        clone = with_layer_norm(model, copy_weights=copy_weights)
    assert kinds_in(clone) == kinds_in(model)


class Decay(keras.regularizers.Regularizer):
    """Nobody has registered it."""


def test_what_a_config_does_not_hold():
    model = model_of(layers.LSTM(U, kernel_regularizer=Decay(), name="mine"))
    found = message(model)
    assert "cannot clone the layer 'mine' of class LSTM" in found
    assert "keras.saving.register_keras_serializable" in found


def test_groups_and_the_sum():
    model = keras.Sequential(
        [
            keras.Input((T, D)),
            layers.Bidirectional(layers.LSTM(U, return_sequences=True)),
            layers.GRU(U, return_sequences=True),
            layers.SimpleRNN(U),
        ]
    )
    clone = with_layer_norm(model, ("sum", "state"), groups="gate")
    bidirectional, gru, simple = clone.layers
    for part in (bidirectional.forward_layer, bidirectional.backward_layer):
        assert part.normalize == ("state", "sum") and part.groups == "gate"
    x = example(B, T, D)
    by_hand = keras_ln.LNLSTM(
        U, normalize=("sum", "state"), groups="gate", return_sequences=True
    )
    by_hand.build((B, T, D))
    lstm = model.layers[0].forward_layer
    for name in ("kernel", "recurrent_kernel", "bias"):
        getattr(by_hand.cell, name).assign(getattr(lstm.cell, name))
    np.testing.assert_allclose(
        to_numpy(by_hand(x)), to_numpy(bidirectional(x))[..., :U], **CLOSE
    )
    assert (gru.normalize, gru.groups) == (("sum",), "gate")
    keras_gru = model.layers[1].cell
    signs = np.repeat([-1.0, 1.0, 1.0], U)
    np.testing.assert_allclose(
        to_numpy(gru.cell.bias), to_numpy(keras_gru.bias).sum(0) * signs
    )
    assert type(simple) is keras_ln.LNSimpleRNN
    with pytest.raises(ValueError, match="`groups` must be one of"):
        with_layer_norm(model, groups="gates")
    with pytest.raises(ValueError, match='`normalize` must have "sum" in'):
        with_layer_norm(model, ("sum", "kernel"))


def test_a_copy_of_with_fast_rnn():
    fast = keras_ln.with_fast_rnn(model_of(layers.LSTM(U, name="mine")))
    assert "keras_ln.to_keras" in message(fast)
    assert "'mine' of class FastLSTM" in message(fast)
    clone = with_layer_norm(keras_ln.to_keras(fast))
    assert type(clone.layers[0]) is keras_ln.LNLSTM
