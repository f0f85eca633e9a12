"""Models to export, and what goes into them."""

import keras
import numpy as np
from descriptors import BY_NAME, LAYERS, B, D, randomize

import keras_ln

STEPS = 3
# Rounding, float32: fused or not, and by another library's kernels. A layer
# norm of a small vector magnifies it.
ROUNDING = {"rtol": 1e-4, "atol": 2e-5}


def small():
    """A mask, a sequence op and a layer norm."""
    inputs = keras.Input((None, D), name="x")
    x = keras.layers.Masking()(inputs)
    x = keras_ln.LNLSTM(3, return_sequences=True)(x)
    return keras.Model(inputs, keras_ln.LayerNormalization()(x))


def everything():
    """Every kind of layer one after the other, behind a mask."""
    inputs = keras.Input((None, D), name="x")
    x = keras.layers.Masking()(inputs)
    x = keras_ln.LNLSTM(4, return_sequences=True)(x)
    x = keras_ln.BNLSTM(3, max_steps=STEPS, return_sequences=True)(x)
    x = keras_ln.LayerNormalization()(x)
    x = keras_ln.RecurrentBatchNorm(max_steps=STEPS)(x)
    x = keras_ln.WeightNormDense(3)(x)
    x = keras_ln.BatchNormalization()(x)
    last = keras_ln.WNLSTM(3, go_backwards=True, projection=2)
    return keras.Model(inputs, last(x))


def stacked_cells():
    """Cells in the loop of Keras, which LiteRT cannot run."""
    inputs = keras.Input((None, D), name="x")
    x = keras.layers.Masking()(inputs)
    cells = [keras_ln.LNLSTMCell(3), keras_ln.LNSimpleRNNCell(2)]
    return keras.Model(inputs, keras.layers.RNN(cells)(x))


def packed():
    """Several sequences in one row, a model of two inputs."""
    inputs = keras.Input((None, D), name="x")
    first = keras.Input((None,), name="first", dtype="bool")
    x = keras.layers.Masking()(inputs)
    x = keras_ln.LNLSTM(4, return_sequences=True)(x, reset=first)
    x = keras_ln.LNGRU(3, return_sequences=True, go_backwards=True)(
        x, reset=first
    )
    return keras.Model([inputs, first], x)


def streaming():
    """What `with_states` takes, for one row."""
    inputs = keras.Input((None, D), name="x", batch_size=1)
    x = keras_ln.LNLSTM(4, return_sequences=True, zoneout=0.1)(inputs)
    x = keras.layers.LSTM(3, return_sequences=True)(x)
    x = keras.layers.GRU(4, return_sequences=True)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def in_pieces(call, stream, x, steps=1):
    """All outputs of a model `with_states`, run by `call` on lists of arrays.

    `x` is an array (B, T, ...) or a list of them.
    """
    x = x if isinstance(x, list) else [x]
    states = [
        np.zeros((len(x[0]), state.shape[1]), state.dtype)
        for state in stream.inputs[len(x) :]
    ]
    found = []
    for start in range(0, x[0].shape[1], steps):
        pieces = [array[:, start : start + steps] for array in x]
        made = call([*pieces, *states])
        y, *states = map(keras.ops.convert_to_numpy, made)
        found.append(y)
    return found


def alone(name):
    """One layer; a recurrent one behind a mask, every step both ways."""
    row = BY_NAME[name]
    sequence = len(row.input_shape) == 3
    inputs = keras.Input((None, D) if sequence else (D,), name="x")
    if not row.is_recurrent:
        return keras.Model(inputs, row.make()(inputs))
    layer = row.make(return_sequences=True, zero_output_for_mask=True)
    x = keras.layers.Masking()(inputs)
    return keras.Model(inputs, keras.layers.Bidirectional(layer)(x))


def model(name):
    """A model by its name here, with random weights and called once."""
    makers = {
        maker.__name__: maker
        for maker in (small, everything, stacked_cells, packed, streaming)
    }
    made = makers[name]() if name in makers else alone(name)
    randomize(made)
    made(samples(made)[0])
    return made


def samples(made):
    """Two batches of other sizes and lengths, with steps to mask."""
    rng = np.random.default_rng(0)

    def batch(*sizes):
        def sample(given):
            if given.dtype == "bool":
                return rng.random(sizes) < 0.5
            sequence = len(given.shape) == 3
            shape = (*sizes, D) if sequence else (sizes[0], D)
            x = rng.normal(size=shape).astype("float32")
            if sequence:
                x[0, sizes[1] // 2 :] = 0.0  # padded on the right,
                x[1, :2] = 0.0  # on the left,
                x[-1, 1] = 0.0  # and a gap
            return x

        return keras.tree.map_structure(sample, made.input)

    return [batch(B, STEPS), batch(7, STEPS + 2)]


def outputs(made, inputs):
    """What the model itself makes of them."""
    return [keras.ops.convert_to_numpy(made(x, training=False)) for x in inputs]


NAMES = (
    "small",
    "everything",
    "stacked_cells",
    "packed",
    *(row.name for row in LAYERS),
)
