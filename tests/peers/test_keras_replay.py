"""Keras' test cases with layers that the literals in them do not fit.

Each case runs twice, with Keras' layers and with ours. The GRU has no biases
on either side, and an LSTM stands where Keras' case has a simple RNN or a
cell of its own, as ours always normalise or do not exist; the cases of the
simple RNN compare our layer with Keras' loop around our cell. What the case
compares with a literal is recorded instead, and the two records must agree.
"""

import keras
import numpy as np
import pytest
from peers import keras_cases
from tolerances import FLOAT32_VALUES

import keras_ln

# XLA compiles for each of them, and what they test stands above the backend.
if keras.backend.backend() != "torch":
    pytestmark = pytest.mark.full

SEEDED = {
    "kernel_initializer": keras.initializers.GlorotUniform(seed=1),
    "recurrent_initializer": keras.initializers.Orthogonal(seed=2),
}
THEIRS = {
    "LSTM": keras.layers.LSTM,
    "LSTMCell": keras.layers.LSTMCell,
    "GRU": keras_cases.KerasGRU,
    "GRUCell": keras_cases.KerasGRUCell,
}
OURS = {
    "LSTM": keras_cases.LSTM,
    "LSTMCell": keras_cases.LSTMCell,
    "GRU": keras_cases.GRU,
    "GRUCell": keras_cases.GRUCell,
}
MODULES = (
    "rnn.rnn_test",
    "rnn.gru_test",
    "rnn.bidirectional_test",
    "rnn.stacked_rnn_cells_test",
)
LEFT_OUT = {
    # Whether Keras may hand its own layers to cuDNN.
    "test_fused_lstm_eligibility",
    "test_fused_gru_eligibility",
    "test_torch_cudnn_dispatch_fires",
    "test_torch_cudnn_bidirectional_gru_dispatch_fires",
    # That keras.layers.SimpleRNN has no such argument; ours are below.
    "test_keeps_use_cudnn",
}


class Recorder:
    """Mixed into a test case: keeps what is compared with a literal."""

    in_layer_test = False

    def assertAllClose(self, actual, expected, **options):  # noqa: N802 (unittest's way)
        if self.in_layer_test:
            super().assertAllClose(actual, expected, **options)
        else:
            self.record.append(keras.ops.convert_to_numpy(actual))

    def run_layer_test(self, layer_class, init_kwargs, **kwargs):
        kwargs = {k: v for k, v in kwargs.items() if "expected_num" not in k}
        kwargs.pop("custom_objects", None)
        self.in_layer_test = True
        super().run_layer_test(layer_class, init_kwargs, **kwargs)
        self.in_layer_test = False


def cells_of_the_tests(layers):
    """Cells with as many states as those that Keras' files define."""

    def cell(name):
        # Their `state_size` says no more than `units`.
        def make(units, state_size=None, **kwargs):
            return layers[name](units, **SEEDED | kwargs)

        return make

    return {
        "OneStateRNNCell": cell("GRUCell"),
        "TwoStatesRNNCell": cell("LSTMCell"),
    }


def our_layer(cell, **kwargs):
    """In place of keras.layers.RNN(cell): the cell's own sequence layer."""
    if isinstance(cell, list):
        return keras.layers.RNN(cell, **kwargs)
    of_cell = {
        keras_cases.LSTMCell: keras_cases.LSTM,
        keras_cases.GRUCell: keras_cases.GRU,
    }
    return of_cell[type(cell)](**cell.arguments_config(), **kwargs)


def replaced(layers, **others):
    """What to put into a module of Keras."""
    return {
        **cells_of_the_tests(layers),
        **layers,
        "SimpleRNN": layers["LSTM"],
        "SimpleRNNCell": layers["LSTMCell"],
        **others,
    }


def run(module, layers, name):
    """What one test recorded."""
    keras.utils.set_random_seed(1)
    base = keras_cases.case_class(module, layers)
    case = type("Case", (Recorder, base), {})(name)
    case.record = []
    case.debug()
    return case.record


def names(module):
    """The tests of a module."""
    found = keras_cases.names(module, replaced(THEIRS, RNN=None))
    return [
        name
        for name in found
        if name not in LEFT_OUT and keras_cases.is_of_this_backend(module, name)
    ]


CASES = [(module, name) for module in MODULES for name in names(module)]


def compare(module, name, **others):
    theirs = run(module, replaced(THEIRS), name)
    same(run(module, replaced(OURS, **others), name), theirs)
    return theirs


def same(ours, theirs):
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, **FLOAT32_VALUES)


@pytest.mark.parametrize("module, name", CASES)
def test_our_cells_and_layers(module, name):
    compare(module, name)


@pytest.mark.parametrize(
    "name",
    # Those two want a class, to make layers of it by themselves.
    sorted({*names("rnn.rnn_test")} - {"test_basics", "test_serialization"}),
)
def test_our_layers_for_keras_layers_rnn(name):
    compare("rnn.rnn_test", name, RNN=our_layer)


def simple_rnn(units, **arguments):
    """Our simple RNN with weights that tell its units apart."""
    return keras_ln.LNSimpleRNN(units, **arguments | SEEDED)


def keras_loop(units, **arguments):
    """Keras' loop around our cell."""
    of_cell = {
        name: arguments.pop(name)
        for name in list(arguments)
        if name.endswith("_initializer")
    }
    cell = keras_ln.LNSimpleRNNCell(units, **of_cell | SEEDED)
    return keras.layers.RNN(cell, **arguments)


@pytest.mark.parametrize(
    "name",
    # That one wants a class.
    sorted(
        {*keras_cases.names("rnn.simple_rnn_test", ["SimpleRNN"])}
        - {"test_basics"}
    ),
)
def test_our_simple_rnn(name):
    theirs, ours = (
        run("rnn.simple_rnn_test", {"SimpleRNN": make}, name)
        for make in (keras_loop, simple_rnn)
    )
    same(ours, theirs)
    assert len(ours) > 1
    assert all(np.ptp(value) > 1e-3 for value in ours)


@pytest.mark.parametrize("use_cudnn", [True, False, "auto"])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_bidirectional_keeps_use_cudnn(name, use_cudnn):
    both = keras.layers.Bidirectional(OURS[name](1, use_cudnn=use_cudnn))
    assert both.forward_layer.use_cudnn == use_cudnn
    assert both.backward_layer.use_cudnn == use_cudnn


def test_the_records_are_not_empty():
    values = compare("rnn.rnn_test", "test_masking", RNN=our_layer)
    values += compare("rnn.bidirectional_test", "test_correctness")
    values += compare("rnn.gru_test", "test_pass_initial_state")
    assert len(values) > 9
    assert all(np.ptp(value) > 1e-3 for value in values)
