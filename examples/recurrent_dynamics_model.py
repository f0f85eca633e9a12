"""The recurrent layers of `recurrent_dynamics.py`."""

import keras

import keras_ln

CELLS = {
    "RNN": (keras.layers.SimpleRNN, keras_ln.LNSimpleRNN),
    "GRU": (keras.layers.GRU, keras_ln.LNGRU),
    "LSTM": (keras.layers.LSTM, keras_ln.LNLSTM),
}
KINDS = ("plain", "layer")
FEATURES = 8


def build_model(
    cell: str, kind: str, scale: float, units: int, seed: int
) -> keras.layers.RNN:
    """A layer for inputs (B, T, 8), with recurrent weights of one scale."""
    layer = CELLS[cell][KINDS.index(kind)](
        units,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        recurrent_initializer=keras.initializers.Orthogonal(
            gain=scale, seed=seed + 1
        ),
    )
    layer.build((None, None, FEATURES))
    return layer
