"""Keras' own test modules, loaded with other layers in them.

The wheel of Keras holds its tests, keras/src/layers/*/*_test.py. They are not
copied: `load` runs a module's source anew and swaps names in it.
"""

import importlib.util
import pathlib
import types

import keras
import numpy as np

import keras_ln


class Swapped:
    """A module with some names replaced."""

    def __init__(self, module, replacements):
        self._module, self._replacements = module, replacements

    def __getattr__(self, name):
        if name in self._replacements:
            return self._replacements[name]
        return getattr(self._module, name)


def load(name, *, cells=None, **layers):
    """A test module of Keras.

    Args:
        name: below keras.src.layers, such as "rnn.lstm_test".
        cells: test cells of the module, and what to put in their place.
        **layers: names in `keras.layers`, and what to put in their place.
    """
    spec = importlib.util.find_spec(f"keras.src.layers.{name}")
    module = types.ModuleType(f"{spec.name}_with_ours")
    module.__file__ = spec.origin
    source = pathlib.Path(spec.origin).read_text()
    exec(compile(source, spec.origin, "exec"), vars(module))
    module.layers = Swapped(module.layers, layers)
    vars(module).update(cells or {})
    return module


def without_norm(base, name, **defaults):
    """A subclass of our layer that is the Keras layer it has to equal."""

    def __init__(self, units, **kwargs):
        # Keras' layers take it, ours say that there is but one.
        kwargs.pop("implementation", None)
        super(cls, self).__init__(units, **{**defaults, **kwargs})

    def call(self, inputs, *args, **kwargs):
        # Ours refuse integers, which a few of the tests feed.
        if "int" in keras.backend.standardize_dtype(inputs.dtype):
            inputs = keras.ops.cast(inputs, self.compute_dtype)
        return super(cls, self).__call__(inputs, *args, **kwargs)

    cls = type(name, (base,), {"__init__": __init__, "__call__": call})
    return keras.saving.register_keras_serializable("peers")(cls)


LSTM = without_norm(keras_ln.LNLSTM, "PlainLSTM", normalize=())
LSTMCell = without_norm(keras_ln.LNLSTMCell, "PlainLSTMCell", normalize=())
BNLSTM = without_norm(keras_ln.BNLSTM, "PlainBNLSTM", normalize=())
WNLSTM = without_norm(keras_ln.WNLSTM, "UntrainedWNLSTM")


@keras.saving.register_keras_serializable("peers")
class Turned(keras.initializers.Initializer):
    """Another initializer, the update gate's columns with the other sign.

    Keras' update gate keeps the old h, ours opens to the new one, and
    sigmoid(-z) is 1 - sigmoid(z).
    """

    def __init__(self, initializer):
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        sign = np.repeat([-1.0, 1.0, 1.0], shape[-1] // 3)
        value = self.initializer(shape, dtype=dtype)
        return value * keras.ops.convert_to_tensor(sign, value.dtype)

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def clone(self):
        return type(self)(self.initializer)


def turned(base, name):
    """LNGRU or its cell without norms, its weights those of Keras' GRU.

    Keras adds a bias to the candidate's part of h R, inside the product with
    the reset gate, where ours has none: both go without biases here.
    """

    def __init__(self, units, **kwargs):
        kwargs.pop("reset_after", None)
        for kind in ("kernel", "recurrent"):
            key = f"{kind}_initializer"
            default = {"kernel": "glorot_uniform", "recurrent": "orthogonal"}
            given = kwargs.get(key, default[kind])
            given = keras.initializers.get(given)
            kwargs[key] = given if isinstance(given, Turned) else Turned(given)
        super(cls, self).__init__(
            units, **{"normalize": (), **kwargs, "use_bias": False}
        )

    cls = type(name, (base,), {"__init__": __init__})
    return keras.saving.register_keras_serializable("peers")(cls)


GRU = turned(keras_ln.LNGRU, "TurnedGRU")
GRUCell = turned(keras_ln.LNGRUCell, "TurnedGRUCell")


def without_bias(base, name):
    """Keras' GRU or its cell without biases."""

    def __init__(self, units, **kwargs):
        kwargs.pop("reset_after", None)  # ours has no other way
        super(cls, self).__init__(units, **{**kwargs, "use_bias": False})

    cls = type(name, (base,), {"__init__": __init__})
    return keras.saving.register_keras_serializable("peers")(cls)


KerasGRU = without_bias(keras.layers.GRU, "GRUWithoutBias")
KerasGRUCell = without_bias(keras.layers.GRUCell, "GRUCellWithoutBias")
