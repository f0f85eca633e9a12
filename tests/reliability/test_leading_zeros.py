"""Padding with zeros and without a mask: models train, as with Keras' layers.

Keras pads in front by default, and the state of zero stays zero until the
first number that is none. A model behind `Masking` trains beside each.
"""

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND

import keras_ln

pytestmark = pytest.mark.compiled

LAYERS = ("LNLSTM", "LNGRU", "LNSimpleRNN", "BNLSTM")
LENGTHS = {20: 12, 40: 24, 140: 124}  # of which zeros
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "sgd": lambda: keras.optimizers.SGD(0.05),
}
BATCH, FEATURES, UNITS = 32, 3, 16


def parameters(cases, quick):
    """The cases; XLA compiles too long for any of them to be quick."""
    quick = quick if BACKEND == "torch" else []
    return [
        pytest.param(
            *case,
            id="-".join(map(str, case)),
            marks=[] if case in quick else [pytest.mark.full],
        )
        for case in cases
    ]


def sequences(steps, zeros, at_the_end=False):
    """x and y: whether the first feature is above zero on the whole."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 3 * BATCH)
    x = rng.normal(size=(len(y), steps, FEATURES)).astype("float32")
    x[:, :, 0] += 0.7 * (2 * y[:, None] - 1)
    padding = slice(steps - zeros, None) if at_the_end else slice(zeros)
    x[:, padding] = 0.0
    return x, y


def train(recurrent, x, y, optimizer):
    """The losses of a few epochs; every weight is finite after them."""
    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, keras.layers.Dense(2)(recurrent(inputs)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(OPTIMIZERS[optimizer](), loss)
    history = model.fit(
        x, y, batch_size=BATCH, epochs=6, shuffle=False, verbose=0
    )
    for weight in model.get_weights():
        assert np.isfinite(weight).all()
    return history.history["loss"]


def check(make, x, y, optimizer):
    """Losses fall, as they do with a mask."""
    for masked in (False, True):
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Masking()] if masked else []
        losses = train(keras.Sequential([*layers, make()]), x, y, optimizer)
        assert np.isfinite(losses).all()
        # BNLSTM's gains of 0.1 take their time.
        assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(
    "name, steps, optimizer",
    parameters(
        [
            (name, steps, optimizer)
            for name in LAYERS
            for steps in LENGTHS
            for optimizer in OPTIMIZERS
        ],
        [
            ("LNLSTM", 20, "adam"),
            ("LNGRU", 40, "adam"),
            ("LNSimpleRNN", 40, "sgd"),
            ("BNLSTM", 20, "sgd"),
        ],
    ),
)
def test_zeros_at_the_start(name, steps, optimizer):
    x, y = sequences(steps, LENGTHS[steps])
    layer_class = getattr(keras_ln, name)
    check(lambda: layer_class(UNITS), x, y, optimizer)


@pytest.mark.parametrize(
    "name, optimizer",
    parameters(
        [(name, optimizer) for name in LAYERS for optimizer in OPTIMIZERS],
        [("LNLSTM", "adam"), ("LNSimpleRNN", "sgd")],
    ),
)
def test_bidirectional_over_zeros_at_the_end(name, optimizer):
    x, y = sequences(40, LENGTHS[40], at_the_end=True)
    layer_class = getattr(keras_ln, name)
    check(
        lambda: keras.layers.Bidirectional(layer_class(UNITS)),
        x,
        y,
        optimizer,
    )


class Learnt(keras.layers.Layer):
    """A recurrent layer whose first h is learnt, from zero."""

    def __init__(self, recurrent):
        super().__init__()
        self.recurrent = recurrent
        self.h = self.add_weight(shape=(1, UNITS), initializer="zeros")

    def call(self, x):
        rows = keras.ops.zeros_like(x[:, 0, :1])
        states = [rows + self.h]
        if len(self.recurrent.state_size) > 1:
            states.append(keras.ops.zeros_like(states[0]))
        return self.recurrent(x, initial_state=states)


@pytest.mark.parametrize(
    "name",
    parameters(
        [("LNLSTM",), ("LNGRU",), ("LNSimpleRNN",)],
        [("LNLSTM",), ("LNGRU",), ("LNSimpleRNN",)],
    ),
)
def test_a_learnt_state_leaves_zero(name):
    x, y = sequences(40, LENGTHS[40])
    layer = Learnt(getattr(keras_ln, name)(UNITS))
    losses = train(layer, x, y, "adam")
    assert losses[-1] < 0.9 * losses[0]
    assert abs(keras.ops.convert_to_numpy(layer.h)).max() > 1e-3
