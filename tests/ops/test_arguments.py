"""Every refusal of keras_ln.ops.arguments, by its message."""

import math

import numpy as np
import pytest

from keras_ln.ops import arguments, dtypes


@pytest.mark.parametrize("units", [0, -3, 2.0, "8", None, True])
def test_units_must_be_a_positive_integer(units):
    with pytest.raises(ValueError, match=r"`units` must be a positive integer"):
        arguments.check_positive_integer("units", units)


def test_units_accepts_numpy_integers():
    units = arguments.check_positive_integer("units", np.int64(7))
    assert units == 7 and type(units) is int


@pytest.mark.parametrize(
    "epsilon", [-1e-5, math.nan, math.inf, -math.inf, "1e-5", None, True]
)
def test_epsilon_must_be_finite_and_not_negative(epsilon):
    with pytest.raises(ValueError, match=r"`epsilon` must be a finite number"):
        arguments.check_epsilon(epsilon)


def test_epsilon_zero_depends_on_the_caller():
    assert arguments.check_epsilon(0) == 0.0
    with pytest.raises(ValueError, match=r"finite number > 0.*epsilon=0"):
        arguments.check_epsilon(0, allow_zero=False)
    assert arguments.check_epsilon(1e-5, allow_zero=False) == 1e-5


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan, "a", None])
def test_fraction_names_the_argument(value):
    with pytest.raises(ValueError, match=r"`momentum` must be a number betwe"):
        arguments.check_fraction("momentum", value)


@pytest.mark.parametrize("value", [0, 1, 0.5])
def test_fraction_includes_both_ends(value):
    assert arguments.check_fraction("momentum", value) == float(value)


@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8"])
def test_only_floating_dtypes(dtype):
    with pytest.raises(ValueError, match=rf"`x` must have a floa.*{dtype}"):
        arguments.check_floating("x", dtype)


def test_floating_dtypes_are_returned_by_name():
    assert arguments.check_floating("x", np.float64) == "float64"


@pytest.mark.parametrize("shape", [(2, 3), (None, 2, 3, 4)])
def test_rank(shape):
    with pytest.raises(ValueError, match=r"rank 3, \(batch, time, features\)"):
        arguments.check_rank("x", shape, "batch, time, features")
    arguments.check_rank("x", (None, 3, 4), "batch, time, features")


@pytest.mark.parametrize("shape", [(2, None), (2, 0)])
def test_size_must_be_known(shape):
    with pytest.raises(ValueError, match=r"Axis -1 of `x` must have a known"):
        arguments.check_known("x", shape, -1)
    assert arguments.check_known("x", (None, 5), -1) == 5


@pytest.mark.parametrize("axis", [1.0, None, "1", [0, 1.0]])
def test_axes_must_be_integers(axis):
    with pytest.raises(TypeError, match=r"`axis` must be an integer or a list"):
        arguments.check_axes(axis, 3)


@pytest.mark.parametrize(
    "axis, message",
    [
        *(
            (a, r"out of range for .* rank 3.* -3 to 2")
            for a in (3, -4, [0, 3])
        ),
        *((a, "different axes of an .*rank 3") for a in ([1, 1], [1, -2], [])),
    ],
)
def test_axes_must_be_different_and_in_range(axis, message):
    with pytest.raises(ValueError, match=message):
        arguments.check_axes(axis, 3)


@pytest.mark.parametrize(
    "axis, expected", [(-1, (2,)), (0, (0,)), ([-1, 0], (0, 2)), ((1,), (1,))]
)
def test_axes_come_back_sorted(axis, expected):
    assert arguments.check_axes(axis, 3) == expected


@pytest.mark.parametrize(
    "dtype, expected",
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
    ],
)
def test_statistics_never_lose_precision(dtype, expected):
    assert dtypes.at_least_float32(dtype) == expected
