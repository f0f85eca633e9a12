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
        ("initial_states", [np.ones((1, 4), "float32")] * 2, r"\(1, 4\)"),
        (
            "initial_states",
            [np.ones((2, 4), "int32")] * 2,
            "states.*float.*int",
        ),
        ("mask", np.ones((2, 7), bool), r"mask.*\(2, 5\).*\(2, 7\)"),
        ("mask", np.ones((1, 5), bool), r"mask.*\(2, 5\).*\(1, 5\)"),
        ("mask", np.ones((2, 5, 1), bool), r"mask.*\(2, 5, 1\)"),
        ("input_mask", np.ones((2, 4)), r"input_mask.*\(2, 3\).*\(2, 4\)"),
        ("recurrent_mask", np.ones((4, 2)), r"rec.*_mask.*\(2, 4\).*\(4, 2\)"),
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


@pytest.mark.parametrize(
    ("op", "weights", "options", "message"),
    [
        ("bn_lstm", {"state_gamma": (4,)}, {"learn": False}, "state_moving_me"),
        (
            "bn_lstm",
            {
                "state_gamma": (4,),
                "state_moving_mean": (5, 3),
                "state_moving_variance": (5, 3),
            },
            {"learn": False},
            r"state_moving_mean.*, 4\).*\(5, 3\)",
        ),
        (
            "bn_lstm",
            {"other_moving_mean": (5, 4)},
            {"learn": True},
            "'other_mo",
        ),
        ("wn_lstm", {"kernel_g": (16,)}, {}, "without recurrent_g"),
        (
            "wn_lstm",
            {"kernel_g": (4,), "recurrent_g": (16,)},
            {},
            r"kernel_g.*\(16,\).*\(4,\)",
        ),
        (
            "wn_lstm",
            {"kernel_g": (16,), "recurrent_g": (16,), "kernel_gamma": (16,)},
            {},
            "Received: kernel_gamma",
        ),
    ],
)
def test_wrong_weights_of_other_ops(op, weights, options, message):
    arguments = lstm_arguments()
    for name, shape in weights.items():
        arguments["weights"][name] = keras.ops.ones(shape)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        getattr(ops, op)(**arguments, **options)


@pytest.mark.parametrize("name", ["kernel", "recurrent_kernel"])
@pytest.mark.parametrize("op", OPS.values())
def test_kernels_are_matrices(op, name):
    arguments = lstm_arguments()
    arguments["weights"][name] = keras.ops.ones(())
    if op is ops.bn_lstm:
        arguments["learn"] = True
    if op is ops.wn_lstm:
        gains = {n: keras.ops.ones(16) for n in ("kernel_g", "recurrent_g")}
        arguments["weights"] |= gains
    with pytest.raises(ValueError, match=rf"`{name}` must have rank 2.*\(\)"):
        op(**arguments)


def test_masks_of_another_dtype():
    arguments = lstm_arguments()
    rng = np.random.default_rng(0)
    mask = rng.random((2, 5)) < 0.5
    dropout = {
        "input_mask": rng.integers(0, 2, (2, 3)) * 2.0,
        "recurrent_mask": rng.integers(0, 2, (2, 4)) * 2.0,
    }
    wanted = {n: m.astype("float32") for n, m in dropout.items()}
    found = ops.ln_lstm(**arguments, mask=mask.astype("int32"), **dropout)
    right = ops.ln_lstm(**arguments, mask=mask, **wanted)
    for a, b in zip(numbers(found), numbers(right), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_inference_keeps_nothing_for_a_gradient(row, monkeypatch):
    kept = []
    stack = recurrence.backend.scan

    def scan(*args, **kwargs):
        found = stack(*args, **kwargs)
        kept.append(keras.tree.flatten(found[1][1:]))
        return found

    monkeypatch.setattr(recurrence.backend, "scan", scan)
    recurrence._operation.cache_clear()  # What is compiled scans no more.
    layer = Problem(row).layer()
    layer(Problem(row).x, training=False)
    assert kept
    for tensors in kept:
        own = [t for t in tensors if t is not None]
        assert bool(own) == row.batch_statistics


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
