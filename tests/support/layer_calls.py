"""Layers of the rows in descriptors.py: calls, choices of zoneout, weights."""

import inspect

import keras
import numpy as np
from arrays import to_numpy
from descriptors import B, D, T, U

# Values other than the default of constructor arguments, by name or by the last
# word of it; of flags and of a row's options there are others.
OTHER_VALUES = {
    "units": 5,
    "axis": 1,
    "momentum": 0.5,
    "max_steps": 7,
    "epsilon": 1e-3,
    "activation": "relu",
    "recurrent_activation": "hard_sigmoid",
    "dropout": 0.25,
    "recurrent_dropout": 0.125,
    "zoneout": 0.25,
    "cell_zoneout": 0.125,
    "seed": 3,
    "use_fused": False,
    "use_cudnn": False,
    "layer": keras.layers.Dense(7, name="another"),
    "initializer": "random_normal",
    "regularizer": "l2",
    "constraint": "unit_norm",
}


def other_value(row, name):
    """A value for an argument of the row's layer that is not its default."""
    default = inspect.signature(row.layer_class).parameters[name].default
    if isinstance(default, bool):
        return not default
    if name == "normalize":
        return default[1:]  # carry_normalized_state needs "state"
    if name in row.options:
        return next(v for v in row.options[name] if v != default)
    kind = name if name in OTHER_VALUES else name.rpartition("_")[2]
    return OTHER_VALUES[kind]


def call(layer, row, x, **options):
    """The first output on x as an array."""
    if row.is_cell:
        options["states"] = [
            keras.ops.convert_to_tensor(state)
            for state in row.cell_states(np.random.default_rng(5))
        ]
    outputs = layer(x, **options)
    output = keras.tree.flatten(outputs)[0]
    return to_numpy(output)


def example(row, seed=11):
    rng = np.random.default_rng(seed)
    return rng.normal(size=row.input_shape).astype("float32")


H, C = 0.3, 0.15


def shares(row):
    """Of h and, where there is one, of c."""
    names = ("zoneout", "cell_zoneout")[: row.state_count]
    return dict(zip(names, (H, C), strict=False))


def choices(row, shape=(B, T, U), seed=7, projection=None):
    """Some for each state."""
    rng = np.random.default_rng(seed)
    made = {name: rng.random(shape) < 0.4 for name in shares(row)}
    return made | {"zoneout": made["zoneout"][..., :projection]}


def zoned(row, **arguments):
    """Arguments of a layer with zoneout."""
    return {**shares(row), "return_sequences": True, **arguments}


def drawn_by(layer, shape):
    """The choices of a layer's next call, which draws as this does."""
    cell = layer.cell
    # What keras.layers.RNN asks for before the loop.
    cell.get_dropout_mask(np.ones((shape[0], D)))
    cell.get_recurrent_dropout_mask(np.ones((shape[0], U)))
    made = cell.zoneouts((*shape[:2], U), training=True)
    cell.forget_dropout_masks()
    return {name: to_numpy(value) for name, value in made.items()}


def weight(layer, name):
    return next(w for w in layer.weights if w.name == name)


def stretch(layer):
    """Doubles the gains, so that the kernel is not v."""
    for variable in layer.weights:
        if variable.name.split("_")[-1] == "g":
            variable.assign(2.0 * to_numpy(variable))


LAYERS = ["LNSimpleRNN", "LNGRU", "LNLSTM", "WNLSTM"]


def made(layer):
    layer.build((2, 4, 3))
    return layer
