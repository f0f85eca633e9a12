"""Keras' own test modules, loaded with other layers in them.

The wheel of Keras holds its tests, keras/src/layers/*/*_test.py. They are not
copied: `case_class` runs a module's source anew and swaps names in it.
"""

import ast
import functools
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


def _origin(module):
    """Where a test module of Keras stands, without importing it."""
    return pathlib.Path(
        importlib.util.find_spec(f"keras.src.layers.{module}").origin
    )


def case_class(module, layers):
    """The test case of a module of Keras, with layers replaced.

    Args:
        module: below keras.src.layers, such as "rnn.lstm_test".
        layers: what to put in place of names in `keras.layers`, and of
            classes that the module itself defines.
    """
    origin = _origin(module)
    loaded = types.ModuleType(f"{module}_with_ours")
    loaded.__file__ = str(origin)
    exec(compile(origin.read_text(), origin, "exec"), vars(loaded))
    loaded.layers = Swapped(loaded.layers, layers)
    vars(loaded).update(layers)
    (found,) = (
        value
        for name, value in vars(loaded).items()
        if name.endswith("Test") and isinstance(value, type)
    )
    return found


@functools.cache
def _as_it_is(module):
    return case_class(module, {})


def names(module, layers):
    """The tests of a module that name one of the layers."""
    source = ast.parse(_origin(module).read_text())
    using = tuple(
        function.name
        for function in ast.walk(source)
        if isinstance(function, ast.FunctionDef)
        and any(
            (isinstance(node, ast.Attribute) and node.attr in layers)
            or (isinstance(node, ast.Name) and node.id in layers)
            for node in ast.walk(function)
        )
    )
    return [
        name
        for name in dir(_as_it_is(module))
        # Keras' decorators number the cases of a function.
        if name.startswith("test_") and name.rstrip("0123456789") in using
    ]


def is_of_this_backend(module, name):
    """Whether Keras marks its test as one of another backend."""
    marks = getattr(getattr(_as_it_is(module), name), "pytestmark", ())
    return not any(mark.name == "skipif" and mark.args[0] for mark in marks)


def without_norm(base, name, **defaults):
    """A subclass of our layer that is the Keras layer it has to equal."""

    # Cells that Keras' files define say no more with `state_size`.
    def __init__(self, units, state_size=None, **kwargs):
        super(cls, self).__init__(units, **{**defaults, **kwargs})

    cls = type(name, (base,), {"__init__": __init__})
    return keras.saving.register_keras_serializable("peers")(cls)


LSTM = without_norm(keras_ln.LNLSTM, "PlainLSTM", normalize=())
LSTMCell = without_norm(keras_ln.LNLSTMCell, "PlainLSTMCell", normalize=())
BNLSTM = without_norm(keras_ln.BNLSTM, "PlainBNLSTM", normalize=())
WNLSTM = without_norm(keras_ln.WNLSTM, "UntrainedWNLSTM")
SimpleRNN = without_norm(keras_ln.LNSimpleRNN, "SimpleRNN", use_bias=True)
SimpleRNNCell = without_norm(
    keras_ln.LNSimpleRNNCell, "SimpleRNNCell", use_bias=True
)


@keras.saving.register_keras_serializable("peers")
class LayerNormalization(keras_ln.LayerNormalization):
    """Ours with the epsilon of Keras."""

    def __init__(self, axis=-1, epsilon=1e-3, **kwargs):
        super().__init__(axis=axis, epsilon=epsilon, **kwargs)


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
    """LNGRU or its cell without norms, its weights those of Keras' GRU."""

    def __init__(self, units, state_size=None, **kwargs):
        for kind, default in (
            ("kernel", "glorot_uniform"),
            ("recurrent", "orthogonal"),
            ("bias", "zeros"),
        ):
            key = f"{kind}_initializer"
            given = keras.initializers.get(kwargs.get(key, default))
            kwargs[key] = given if isinstance(given, Turned) else Turned(given)
        defaults = {"normalize": (), "use_bias": True}
        super(cls, self).__init__(units, **{**defaults, **kwargs})

    cls = type(name, (base,), {"__init__": __init__})
    return keras.saving.register_keras_serializable("peers")(cls)


GRUWithBias = turned(keras_ln.LNGRU, "TurnedGRU")
GRUCellWithBias = turned(keras_ln.LNGRUCell, "TurnedGRUCell")


def without_bias(base, name, **fixed):
    """A GRU or a GRU cell without biases, resetting after the product."""

    def __init__(self, units, state_size=None, **kwargs):
        kwargs.pop("reset_after", None)
        super(cls, self).__init__(units, **kwargs | {"use_bias": False} | fixed)

    cls = type(name, (base,), {"__init__": __init__})
    return keras.saving.register_keras_serializable("peers")(cls)


GRUCell = without_bias(GRUCellWithBias, "TurnedGRUCellWithoutBias")
# For the cells that Keras' files define, with as many states.
CELLS_OF_THE_FILE = {"OneStateRNNCell": GRUCell, "TwoStatesRNNCell": LSTMCell}
