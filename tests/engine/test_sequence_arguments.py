"""What the sequence ops convert, and what one op cannot run."""

import inspect

import keras
import numpy as np
import pytest
from arrays import close
from descriptors import SEQUENCE_LAYERS, B, D, T, random_weight
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


@EVERY_OP
def test_no_zoneout_by_default(row):
    # tf.function of an op hands it the defaults of its signature.
    parameters = inspect.signature(row.function).parameters
    assert parameters["zoneout"].default == 0.0


@EVERY_OP
def test_weights_as_nested_lists(row):
    arguments = arguments_of(row)
    right = numbers(call(row, arguments))
    arguments["weights"] = {
        name: weight.tolist() for name, weight in arguments["weights"].items()
    }
    found = numbers(call(row, arguments))
    close(found, right, **FLOAT32_VALUES)


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
