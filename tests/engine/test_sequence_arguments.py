"""What the sequence ops refuse, by its message, and what they convert."""

import inspect

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import SEQUENCE_LAYERS, B, D, T, random_weight
from refusals import NO_NUMBERS
from tolerances import FLOAT32_VALUES

from keras_ln import ops

MOVING = ("state_moving_mean", "state_moving_variance")
EVERY_OP = pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)


def call(row, arguments, **options):
    """The row's function, with all that it needs; the last output alone."""
    if row.batch_statistics:
        options = {"learn": False, **options}
    return row.function(**arguments, **options)[0]


def arguments_of(row):
    rng = np.random.default_rng(1)
    return {
        "sequences": rng.normal(size=(B, T, D)).astype("float32"),
        "initial_states": None,
        "weights": {
            name: random_weight(name, shape, rng).astype("float32")
            for name, shape in row.weights.items()
        },
    }


def numbers(tensors):
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(tensors)]


def lstm_arguments(dtype="float32"):
    rng = np.random.default_rng(0)

    def tensor(*shape):
        return keras.ops.convert_to_tensor(rng.normal(size=shape).astype(dtype))

    return {
        "sequences": tensor(2, 5, 3),
        "initial_states": [tensor(2, 4), tensor(2, 4)],
        "weights": {"kernel": tensor(3, 16), "recurrent_kernel": tensor(4, 16)},
    }


def add_own(op, arguments):
    """Adds the weights that an op needs beside the matrices -> its options."""
    rng = np.random.default_rng(1)
    if op is ops.wn_lstm:
        for name in ("kernel_g", "recurrent_g"):
            weight = rng.normal(size=16).astype("float32")
            arguments["weights"][name] = weight
    if op is not ops.bn_lstm:
        return {}
    shapes = {"state_gamma": 4, **dict.fromkeys(MOVING, (2, 4))}
    for name, shape in shapes.items():
        weight = rng.uniform(0.5, 1.5, shape).astype("float32")
        arguments["weights"][name] = weight
    return {"learn": False}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("initial_states", [np.ones((2, 4), "float32")], "initial_states.*2 t"),
        ("initial_states", [np.ones((1, 4), "float32")] * 2, r"\(1, 4\)"),
        ("weights", {"kernel": np.ones((3, 16))}, "without recurrent_kernel"),
        ("epsilon", 0.0, "epsilon.*> 0.*0.0"),
    ],
)
def test_wrong_arguments(name, value, message):
    """Others are refused in test_arrays.py and test_arguments.py."""
    with pytest.raises(ValueError, match=f"(?s){message}"):
        ops.ln_lstm(**{**lstm_arguments(), name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("activation", "elu", "activation.*sigmoid, tanh.*elu"),
        ("recurrent_activation", "gelu", "recurrent_activation.*gelu"),
        ("unroll", True, "unroll=True asks for an unrolled loop"),
    ],
)
def test_what_one_op_cannot_run(name, value, message):
    with pytest.raises(ValueError, match=f"ln_lstm cannot.*{message}.*auto"):
        ops.ln_lstm(**lstm_arguments(), **{name: value}, use_fused=True)
    found, right = (
        numbers(ops.ln_lstm(**lstm_arguments(), **{name: value}, use_fused=use))
        for use in ("auto", False)
    )
    plain = numbers(ops.ln_lstm(**lstm_arguments()))
    for a, b, c in zip(found, right, plain, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (abs(a - c).max() > 1e-2) == (name != "unroll")


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
            {"state_gamma": ()},
            {"learn": False},
            r"hold state_gamma of shape \(4,\).*shape \(\)",
        ),
        ("bn_lstm", {"other_moving_mean": (5, 4)}, {"learn": True}, "'other_m"),
        ("wn_lstm", {"kernel_g": (16,)}, {}, "without recurrent_g"),
        (
            "wn_lstm",
            {"kernel_g": (4,), "recurrent_g": (16,)},
            {},
            r"`weights` must hold kernel_g of shape \(16,\).*shape \(4,\)\.",
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


@EVERY_OP
def test_no_zoneout_by_default(row):
    # tf.function of an op hands it the defaults of its signature.
    parameters = inspect.signature(row.function).parameters
    assert parameters["zoneout"].default == 0.0


@pytest.mark.parametrize("name", ["kernel", "recurrent_kernel"])
@EVERY_OP
def test_kernels_are_matrices(row, name):
    arguments = arguments_of(row)
    arguments["weights"][name] = keras.ops.ones(())
    message = (
        rf"`weights` must hold {name} of shape \(inputs, columns.*shape \(\)\."
    )
    with pytest.raises(ValueError, match=message):
        call(row, arguments)


@EVERY_OP
def test_an_argument_that_is_not_there(row):
    other = "step" if row.batch_statistics else "first_step"
    message = rf"ops\.{row.op} has no argument `{other}`.*: {other}=1"
    with pytest.raises(TypeError, match=message):
        call(row, arguments_of(row), **{other: 1})
    with pytest.raises(TypeError, match="`go_backward`. Did you mean `go_back"):
        call(row, arguments_of(row), go_backward=True)
    with pytest.raises(TypeError, match="has no argument `states_name`"):
        call(row, arguments_of(row), states_name="h")
    with pytest.raises(TypeError, match=r"Pass .* `weights\['kernel'\]`"):
        call(row, arguments_of(row), kernel=1)


@EVERY_OP
def test_weights_as_nested_lists(row):
    arguments = arguments_of(row)
    right = numbers(call(row, arguments))
    arguments["weights"] = {
        name: weight.tolist() for name, weight in arguments["weights"].items()
    }
    found = numbers(call(row, arguments))
    close(found, right, **FLOAT32_VALUES)


def test_directions_of_whole_numbers():
    arguments = lstm_arguments()
    options = add_own(ops.wn_lstm, arguments)
    whole = np.random.default_rng(2).integers(-3, 4, (4, 16))
    arguments["weights"]["recurrent_kernel"] = whole
    found = numbers(ops.wn_lstm(**arguments, **options)[0])[0]
    arguments["weights"]["recurrent_kernel"] = whole.astype("float32")
    right = numbers(ops.wn_lstm(**arguments, **options)[0])[0]
    close(found, right, **FLOAT32_VALUES)


def test_statistics_of_whole_numbers():
    arguments = lstm_arguments()
    options = add_own(ops.bn_lstm, arguments)
    whole = np.random.default_rng(2).integers(0, 2, (2, 4))
    results = []
    for dtype in ("float32", "int32", "bool"):
        for name in ("state_moving_mean", "state_moving_variance"):
            arguments["weights"][name] = whole.astype(dtype)
        results.append(numbers(ops.bn_lstm(**arguments, **options)[0])[0])
    for found in results[1:]:
        close(found, results[0], **FLOAT32_VALUES)


@pytest.mark.parametrize(
    ("name", "letters"),
    [("input_mask", "batch, features"), ("recurrent_mask", "batch, units")],
)
def test_dropout_masks_are_named_by_their_axes(name, letters):
    """Features and units being as many."""
    arguments = lstm_arguments()
    arguments["sequences"] = keras.ops.ones((2, 5, 4))
    arguments["weights"]["kernel"] = keras.ops.ones((4, 16))
    message = rf"`{name}` must have the shape \({letters}\).*shape \(2, 3\)"
    with pytest.raises(ValueError, match=message):
        ops.ln_lstm(**arguments, **{name: np.ones((2, 3))})


@pytest.mark.parametrize("nested", [False, True])
def test_the_state_of_whole_numbers_is_named(nested):
    arguments = lstm_arguments()
    state = np.ones((2, 4), "int32")
    arguments["initial_states"] = [state] if nested else state
    arguments["weights"] = {
        "kernel": np.ones((3, 12)),
        "recurrent_kernel": np.ones((4, 12)),
    }
    name = r"initial_states\[0\]" if nested else "initial_states"
    message = rf"`{name}` must .*int32.*cast\({name}, "
    with pytest.raises(ValueError, match=message):
        ops.ln_gru(**arguments)


def test_states_that_add_up_start_wide():
    arguments = lstm_arguments("float16")
    _, outputs, states = ops.ln_lstm(**{**arguments, "initial_states": None})
    found = [keras.backend.standardize_dtype(x.dtype) for x in states]
    assert found == ["float16", "float32"]
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


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


@pytest.mark.every_backend
@EVERY_OP
def test_weights_that_are_no_tensors(row):
    """Each weight by its name, and all of them, of sequences and of a step."""
    arguments = arguments_of(row)
    weights = arguments["weights"]
    calls = [lambda weights: call(row, arguments | {"weights": weights})]
    if one := getattr(ops, f"{row.function.__name__}_step", None):
        x = arguments["sequences"][:, 0]
        calls += [
            lambda weights: one(x, None, weights),
            lambda weights: one(x, states=None, weights=weights),
        ]
    for run in calls:
        for name in weights:
            for value in (*NO_NUMBERS, None):
                with pytest.raises(
                    ValueError, match=rf"`weights\['{name}'\]` must .*Received"
                ):
                    run(weights | {name: value})
            for value in (3, 2.5, [], [1.0, 2.0]):
                with pytest.raises(ValueError, match=r"must hold \w+ of shape"):
                    run(weights | {name: value})
        for value in (None, "text", 3, [1.0], list(weights.values())):
            with pytest.raises(ValueError, match="`weights` must be a dict"):
                run(value)
    listed = {name: weight.tolist() for name, weight in weights.items()}
    close(calls[0](listed), calls[0](weights), **FLOAT32_VALUES)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_states_and_masks_that_are_no_tensors(value):
    arguments = lstm_arguments()
    state = arguments["initial_states"][0]
    for name in ("input_mask", "recurrent_mask"):
        with pytest.raises(ValueError, match=f"`{name}` must .*Received"):
            ops.ln_lstm(**arguments, **{name: value})
    if isinstance(value, dict):
        return  # A structure of states.
    with pytest.raises(ValueError, match=r"`initial_states(\[1\])?` must "):
        ops.ln_lstm(**arguments | {"initial_states": [state, value]})
