"""The recurrent layers of `recurrent_dynamics.py`."""

import keras

import keras_ln

CELLS = {
    "RNN": (keras.layers.SimpleRNN, keras_ln.LNSimpleRNN),
    "GRU": (keras.layers.GRU, keras_ln.LNGRU),
    "LSTM": (keras.layers.LSTM, keras_ln.LNLSTM),
}


def build_model(
    cell: str, kind: str, scale: float, units: int, seed: int, features: int = 8
) -> keras.layers.RNN:
    """A layer for inputs (B, T, features), with recurrent weights."""
    layer = CELLS[cell][kind == "layer"](
        units,
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
        recurrent_initializer=keras.initializers.Orthogonal(
            gain=scale, seed=seed + 1
        ),
    )
    layer.build((None, None, features))
    return layer
