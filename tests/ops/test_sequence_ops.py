"""The sequence ops as functions: arguments, defaults, gradients, compiling."""

import keras
import numpy as np
import pytest
from backend_gradients import BACKEND
from descriptors import SEQUENCE_LAYERS
from recurrence import Problem
from tolerances import FLOAT64

from keras_ln import ops
from keras_ln.ops import recurrence
from keras_ln.ops.activations import ACTIVATIONS
from keras_ln.ops.cell import Settings
from keras_ln.ops.ln_lstm import LN_LSTM

OPS = {
    "LNSimpleRNN": ops.ln_simple_rnn,
    "LNGRU": ops.ln_gru,
    "LNLSTM": ops.ln_lstm,
    "BNLSTM": ops.bn_lstm,
    "WNLSTM": ops.wn_lstm,
}


def weights_of(layer):
    return {v.name: keras.ops.convert_to_tensor(v) for v in layer.weights}


def call(row, x, states, weights, **options):
    weights = {n: w for n, w in weights.items() if n != "seed_generator_state"}
    if row.batch_statistics:
        options.setdefault("learn", False)
    return OPS[row.name](x, states, weights, **options)


def numbers(tensors):
    return [
        keras.ops.convert_to_numpy(tensor)
        for tensor in keras.tree.flatten(tensors)
    ]


def test_every_sequence_layer_has_an_op():
    assert {row.name for row in SEQUENCE_LAYERS} == set(OPS)
    assert {op.__name__ for op in OPS.values()} <= set(ops.__all__)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_function_equals_oracle(row):
    """Without states, and with all that a function returns."""
    problem = Problem(row, {"return_sequences": True, "return_state": True})
    layer = problem.layer()
    x = keras.ops.convert_to_tensor(problem.x)
    found = call(row, x, None, weights_of(layer))
    (y, *states), _ = problem.oracle(problem.arrays(layer))
    last_output, outputs, final_states = found[:3]
    np.testing.assert_allclose(numbers(outputs)[0], y, **FLOAT64)
    np.testing.assert_allclose(numbers(last_output)[0], y[:, -1], **FLOAT64)
    for found_state, state in zip(numbers(final_states), states, strict=True):
        np.testing.assert_allclose(found_state, state, **FLOAT64)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_each_weight_counts(row):
    problem = Problem(row, {})
    weights = weights_of(problem.layer())
    x = keras.ops.convert_to_tensor(problem.x)
    states = [keras.ops.convert_to_tensor(s + 0.5) for s in problem.zeros]
    reference = numbers(call(row, x, states, weights)[0])[0]
    for name, weight in weights.items():
        if name == "seed_generator_state":
            continue
        changed = keras.ops.convert_to_numpy(weight).copy()
        changed.flat[-1] += 1e-3
        changed = {**weights, name: keras.ops.convert_to_tensor(changed)}
        output = numbers(call(row, x, states, changed)[0])[0]
        assert abs(output - reference).max() > 1e-8, name


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_gradient_at_inference(row):
    """Nothing was kept for it: the op runs again."""
    problem = Problem(row, {"return_sequences": True})
    kept = problem.layer(use_fused=True)
    kept.trainable = not row.batch_statistics  # else another function
    gradients = []
    for training in (True, False):
        problem.training = training
        gradients.append(problem.run(kept).gradients["x"])
    np.testing.assert_allclose(*gradients, **FLOAT64)
    assert abs(gradients[0]).max() > 1e-3


def lstm_arguments(dtype="float32"):
    rng = np.random.default_rng(0)

    def tensor(*shape):
        return keras.ops.convert_to_tensor(rng.normal(size=shape).astype(dtype))

    return {
        "sequences": tensor(2, 5, 3),
        "initial_states": [tensor(2, 4), tensor(2, 4)],
        "weights": {"kernel": tensor(3, 16), "recurrent_kernel": tensor(4, 16)},
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sequences", np.ones((2, 3), "float32"), "sequences.*batch, time"),
        ("sequences", np.ones((2, 5, 3), "int32"), "sequences.*float.*int32"),
        ("sequences", np.ones((2, 5, 7), "float32"), r"kernel.*\(7, 16\)"),
        ("initial_states", [np.ones((2, 4), "float32")], "initial_states.*2 t"),
        ("initial_states", [np.ones((2, 3), "float32")] * 2, r"\(2, 3\)"),
        ("weights", {"kernel": np.ones((3, 16))}, "without recurrent_kernel"),
        ("epsilon", 0.0, "epsilon.*> 0.*0.0"),
        ("activation", "elu", "activation.*sigmoid, tanh.*elu"),
        ("recurrent_activation", "gelu", "recurrent_activation.*gelu"),
    ],
)
def test_wrong_arguments(name, value, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        ops.ln_lstm(**{**lstm_arguments(), name: value})


def test_wrong_weights():
    arguments = lstm_arguments()
    weights = arguments["weights"]
    weights["gamma"] = np.ones(16, "float32")
    with pytest.raises(ValueError, match="kernel_gamma.*Received.*'gamma'"):
        ops.ln_lstm(**arguments)
    del weights["gamma"]
    weights["bias"] = np.ones(4, "float32")
    with pytest.raises(ValueError, match=r"bias.*\(16,\).*\(4,\)"):
        ops.ln_lstm(**arguments)


def test_states_keep_their_dtypes():
    x, states, weights = lstm_arguments("float16").values()
    wide = [keras.ops.cast(state, "float32") for state in states]
    _, outputs, (h, c) = ops.ln_lstm(x, [states[0], wide[1]], weights)
    assert [str(keras.backend.standardize_dtype(t.dtype)) for t in (h, c)] == [
        "float16",
        "float32",
    ]
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


def test_kernels_take_the_dtype_of_the_sequences():
    arguments = lstm_arguments("float16")
    for name, weight in arguments["weights"].items():
        arguments["weights"][name] = keras.ops.cast(weight, "float32")
    _, outputs, _ = ops.ln_lstm(**arguments)
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


if BACKEND != "torch":

    def test_repeated_shapes_compile_once():
        traces = []

        def step(*args):
            traces.append(args[0].shape)
            return LN_LSTM.step(*args)

        # A cell of its own, so that no other test has compiled it.
        cell = LN_LSTM._replace(step=step)
        x, states, weights = lstm_arguments().values()
        settings = Settings(1e-5, ACTIVATIONS["tanh"], ACTIVATIONS["sigmoid"])

        def run(x, size=2):
            states_of_size = tuple(state[:size] for state in states)
            recurrence.run(cell, x[:size], states_of_size, weights, settings)
            return len(traces)

        first = run(x)
        assert 0 < first == run(x) == run(x + 1.0)
        ragged = run(x, size=1)  # the last batch of an epoch
        assert first < ragged == run(x, size=1) == run(x)
