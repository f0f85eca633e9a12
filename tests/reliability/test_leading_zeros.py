"""Padding with zeros and without a mask: models train, as with Keras' layers.

Keras pads in front by default, and the state of zero stays zero until the
first number that is none. A model behind `Masking` trains beside each.
"""

import keras
import numpy as np
import pytest
from descriptors import NORMALIZED

import keras_ln

LAYERS = [row.name for row in NORMALIZED]
LENGTHS = {20: 12, 40: 24, 140: 124}  # of which zeros
OPTIMIZERS = {
    "adam": lambda **options: keras.optimizers.Adam(0.01, **options),
    "sgd": lambda **options: keras.optimizers.SGD(0.05, **options),
}
BATCH, FEATURES, UNITS = 32, 3, 16


def sequences(steps, zeros, at_the_end=False, batch=BATCH):
    """x and y: whether the first feature is above zero on the whole."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 3 * batch)
    x = rng.normal(size=(len(y), steps, FEATURES)).astype("float32")
    x[:, :, 0] += 0.7 * (2 * y[:, None] - 1)
    padding = slice(steps - zeros, None) if at_the_end else slice(zeros)
    x[:, padding] = 0.0
    return x, y


def train(recurrent, x, y, optimizer, **options):
    """The losses of a few epochs; every weight is finite after them."""
    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, keras.layers.Dense(2)(recurrent(inputs)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(OPTIMIZERS[optimizer](**options), loss)
    history = model.fit(
        x, y, batch_size=len(x) // 3, epochs=6, shuffle=False, verbose=0
    )
    for weight in model.get_weights():
        assert np.isfinite(weight).all()
    return history.history["loss"]


def check(make, x, y, optimizer, **options):
    """Losses fall, as they do with a mask."""
    for masked in (False, True):
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Masking()] if masked else []
        model = keras.Sequential([*layers, make()])
        losses = train(model, x, y, optimizer, **options)
        assert np.isfinite(losses).all()
        # BNLSTM's gains of 0.1 take their time.
        assert losses[-1] < 0.9 * losses[0]


# They train for minutes: a few of them in the full run.
FEW = [
    *(("LNLSTM", 20, "adam"), ("LNGRU", 40, "adam")),
    *(("LNSimpleRNN", 40, "sgd"), ("BNLSTM", 20, "sgd")),
]


def when(*case):
    return pytest.param(
        *case, marks=pytest.mark.full if case in FEW else pytest.mark.slow
    )


@pytest.mark.promise("Recurrent cells do not scale a row without variance")
@pytest.mark.parametrize(
    "name, steps, optimizer",
    [
        when(name, steps, optimizer)
        for name in LAYERS
        for steps in LENGTHS
        for optimizer in OPTIMIZERS
    ],
)
def test_zeros_at_the_start(name, steps, optimizer):
    x, y = sequences(steps, LENGTHS[steps])
    layer_class = getattr(keras_ln, name)
    check(lambda: layer_class(UNITS), x, y, optimizer)
