"""Keras' own test cases, of our layers in place of Keras'."""

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import re
import types
from collections.abc import Callable

import keras
import numpy as np
import pytest

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


WITHOUT_NORM = {
    "LSTM": LSTM,
    "LSTMCell": LSTMCell,
    "GRU": GRUWithBias,
    "GRUCell": GRUCellWithBias,
}
# LNSimpleRNN has no site to leave out: Keras' layer stays where it stands
# beside the others, and ours has suites of its own.
SIMPLE_RNN = {"SimpleRNN": SimpleRNN, "SimpleRNNCell": SimpleRNNCell}
# A name, Keras' module, and what replaces `keras.layers.<key>` in it.
SUITES = {
    "LNLSTM": ("rnn.lstm_test", WITHOUT_NORM),
    "BNLSTM": ("rnn.lstm_test", {"LSTM": BNLSTM}),
    "WNLSTM": ("rnn.lstm_test", {"LSTM": WNLSTM}),
    "LNGRU": ("rnn.gru_test", WITHOUT_NORM),
    "LNSimpleRNN": ("rnn.simple_rnn_test", SIMPLE_RNN),
    # Keras' own RNN with cells of ours for those that the file defines.
    "RNN": ("rnn.rnn_test", CELLS_OF_THE_FILE),
    "Bidirectional": ("rnn.bidirectional_test", WITHOUT_NORM),
    "Bidirectional(LNSimpleRNN)": ("rnn.bidirectional_test", SIMPLE_RNN),
    "StackedRNNCells": ("rnn.stacked_rnn_cells_test", WITHOUT_NORM),
    "StackedRNNCells(LNSimpleRNNCell)": (
        "rnn.stacked_rnn_cells_test",
        SIMPLE_RNN,
    ),
    "TimeDistributed(WeightNormDense)": (
        "rnn.time_distributed_test",
        {"Dense": keras_ln.WeightNormDense},
    ),
    "LayerNormalization": (
        "normalization.layer_normalization_test",
        {"LayerNormalization": keras_ln.LayerNormalization},
    ),
    "LayerNormalization(epsilon=0.001)": (
        "normalization.layer_normalization_test",
        {"LayerNormalization": LayerNormalization},
    ),
    "BatchNormalization": (
        "normalization.batch_normalization_test",
        {"BatchNormalization": keras_ln.BatchNormalization},
    ),
}


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a case cannot pass, and what its error has to say.

    `relax` takes the arguments of a `run_layer_test` of Keras and returns
    those without what cannot hold, or None for none: with it the case passes.
    """

    why: str
    says: str
    relax: Callable[[dict], dict | None] | None = None


def without_counts(arguments):
    counts = ("num_trainable", "num_seed_generators", "num_losses")
    return {
        name: value
        for name, value in arguments.items()
        if not any(count in name for count in counts)
    }


def without_rms(arguments):
    return None if "rms_scaling" in arguments["init_kwargs"] else arguments


COUNTS = "Unexpected number of trainable_weights"
OTHER_VALUE = "Not equal to tolerance"
GAINS = Reason("a gain for each matrix", COUNTS, without_counts)
TWO_BIASES = Reason(
    "two biases, which Keras has as the rows of one", COUNTS, without_counts
)
NOT_AFTER = Reason(
    "a product with the reset gate before it cannot be normalised",
    "`reset_after` must be True",
)
GAMMA_AND_BETA = Reason("gamma and beta", COUNTS, without_counts)
ALWAYS_NORMALISED = Reason(
    "literals of a sum that is not normalised; equal units, as theirs, have "
    "no variance; test_against_oracle.py has such cases with other weights",
    OTHER_VALUE,
)
LINEAR = Reason(
    "literals of linear cells of ones, which no cell of ours can be; "
    "test_against_oracle.py has such cases with other weights",
    OTHER_VALUE,
)
CUDNN = Reason(
    "whether Keras may hand its own layers to cuDNN",
    "False is not true|Requires a CUDA|Guards the torch|never invoked",
)
NO_RMS = Reason(
    "RMS scaling is a layer of its own, in Keras too: RMSNormalization",
    "argument.*rms_scaling",
)
CANNOT_PASS = {
    "WNLSTM-test_basics": GAINS,
    "LNGRU-test_basics": TWO_BIASES,
    "LNGRU-test_correctness0": NOT_AFTER,
    "LNGRU-test_correctness1": NOT_AFTER,
    "LNGRU-test_torch_cudnn_dispatch_fires": CUDNN,
    "LNSimpleRNN-test_basics": GAMMA_AND_BETA,
    "LNSimpleRNN-test_correctness": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_masking": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_pass_initial_state": ALWAYS_NORMALISED,
    "LNSimpleRNN-test_statefulness": ALWAYS_NORMALISED,
    "RNN-test_basics": Reason(
        "a seed generator each, as cells of Keras with dropout have",
        "Unexpected number of seed_generators",
        without_counts,
    ),
    "RNN-test_forward_pass_single_state": LINEAR,
    "RNN-test_forward_pass_two_states": LINEAR,
    "RNN-test_go_backwards": LINEAR,
    "RNN-test_masking": LINEAR,
    "RNN-test_passing_initial_state_single_state": LINEAR,
    "RNN-test_passing_initial_state_two_states": LINEAR,
    "RNN-test_statefulness_single_state": LINEAR,
    "RNN-test_statefulness_two_states": LINEAR,
    "Bidirectional-test_fused_gru_eligibility": CUDNN,
    "Bidirectional-test_fused_lstm_eligibility": CUDNN,
    "Bidirectional-test_torch_cudnn_bidirectional_gru_dispatch_fires": CUDNN,
    "Bidirectional(LNSimpleRNN)-test_basics": GAMMA_AND_BETA,
    "Bidirectional(LNSimpleRNN)-test_correctness": ALWAYS_NORMALISED,
    "StackedRNNCells-test_basics": TWO_BIASES,
    "StackedRNNCells(LNSimpleRNNCell)-test_basics": GAMMA_AND_BETA,
    "TimeDistributed(WeightNormDense)-test_basics": GAINS,
    "LayerNormalization-test_output": Reason(
        "the default epsilon is 1e-5, in Keras 1e-3", OTHER_VALUE
    ),
    "LayerNormalization-test_output_with_rms_scaling": NO_RMS,
    "LayerNormalization(epsilon=0.001)-test_output_with_rms_scaling": NO_RMS,
    **dict.fromkeys(
        [
            "LayerNormalization-test_ln_basics",
            "LayerNormalization(epsilon=0.001)-test_ln_basics",
        ],
        dataclasses.replace(NO_RMS, relax=without_rms),
    ),
    **dict.fromkeys(
        [
            "LayerNormalization-test_invalid_axis",
            "LayerNormalization(epsilon=0.001)-test_invalid_axis",
        ],
        Reason(
            "the same error in words of ours",
            "does not match.*`axis` must be an integer or a list",
        ),
    ),
}


CASES = {
    f"{suite}-{name}": is_of_this_backend(module, name)
    for suite, (module, layers) in SUITES.items()
    for name in names(module, layers)
}


def run(case, relax=None):
    """One case of Keras; `relax` is that of a `Reason`."""
    suite, _, name = case.rpartition("-")
    module, layers = SUITES[suite]

    class Case(case_class(module, layers)):
        def run_layer_test(self, layer_cls, init_kwargs, **kwargs):
            arguments = {"init_kwargs": init_kwargs, **kwargs}
            if relax is not None:
                arguments = relax(arguments)
            if arguments is not None:
                super().run_layer_test(layer_cls, **arguments)

    Case(name).debug()


@pytest.mark.promise("with `normalize=()` the layers pass Keras' own tests")
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]])
def test_case(case):
    reason = CANNOT_PASS.get(case)
    if reason is None:
        run(case)
        return
    # Where a case leaves itself out, unittest raises an `Exception` too.
    with pytest.raises(Exception) as caught:
        run(case)
    assert re.search(reason.says, str(caught.value), re.DOTALL), caught.value
    if reason.relax is not None:
        run(case, reason.relax)


def test_every_reason_has_its_case():
    assert set(CANNOT_PASS) <= set(CASES)
