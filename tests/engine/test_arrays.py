"""Every array of the table, wrong in every way, at both doors."""

import numpy as np
import pytest
from descriptors import BY_NAME

from keras_ln.engine.spec import ARRAYS

B, T, D, U = 2, 3, 4, 5
SIZES = {"B": B, "T": T, "D": D, "U": U, "P": U, "G": 4 * U}
DTYPES = {"real": "float32", "factor": "float32", "flag": bool, "choice": bool}
# What a function and a layer call the array, and its place in a list.
OF_STATES = {
    f"{prefix}_{name}": (*arguments, place)
    for prefix, arguments in (
        ("initial", ("initial_states", "initial_state")),
        ("reset", ("reset_state", "reset_state")),
    )
    for place, name in enumerate("hc")
}
ARGUMENTS = {
    "x": ("sequences", "sequences", None),
    "mask": ("mask", "mask", None),
    "input_mask": ("input_mask", None, None),
    "recurrent_mask": ("recurrent_mask", None, None),
    "zoneout": ("zoneout", None, None),
    "cell_zoneout": ("cell_zoneout", None, None),
    "reset": ("reset", "reset", None),
    **OF_STATES,
}
STATISTICS = {name for name in ARRAYS if "_moving_" in name}


def test_every_array_has_a_door():
    assert {*ARGUMENTS} | STATISTICS == {*ARRAYS}


def wrong_shapes(letters):
    """One axis longer, one axis more, one axis less, no axis, no steps."""
    right = [SIZES[letter] for letter in letters]
    for axis, letter in enumerate(letters):
        if letters == "BTD" and letter in "BT":
            continue  # It is the sequences that say how many there are.
        longer = list(right)
        longer[axis] += 1
        yield tuple(longer)
    yield (*right, 2)
    yield tuple(right[:-1])
    yield ()
    if letters == "BTD":
        yield (B, 0, D)


def wrong_values(name):
    row = ARRAYS[name]
    for shape in wrong_shapes(row.letters):
        yield np.ones(shape, DTYPES[row.values])
    right = [SIZES[letter] for letter in row.letters]
    yield np.ones(right, "complex64")
    if row.values == "choice":
        yield np.ones(right, "float32")
    if row.values == "real":
        yield np.ones(right, "int32")


def arguments_with(name, value, place):
    """Arguments of a call, one of which holds the value."""
    call = {"sequences": np.ones((B, T, D), "float32")}
    given = value
    if place is not None:
        given = [np.ones((B, U), "float32")] * 2
        given[place] = value
    call[name] = given
    if name == "reset_state":
        call["reset"] = np.zeros((B, T), bool)
    return call


CASES = [
    pytest.param(name, value, id=f"{name}-{value.dtype}-{value.shape}")
    for name in ARGUMENTS
    for value in wrong_values(name)
]


@pytest.mark.parametrize("name, value", CASES)
def test_both_doors_refuse_it(name, value):
    function, layer, place = ARGUMENTS[name]
    row, rng = BY_NAME["LNLSTM"], np.random.default_rng(0)
    weights = {
        "kernel": rng.normal(size=(D, 4 * U)),
        "recurrent_kernel": rng.normal(size=(U, 4 * U)),
    }
    words = rf"`?{function}(\[{place}\])?`? |weights.*kernel"
    call = arguments_with(function, value, place)
    call.setdefault("initial_states", None)
    with pytest.raises(ValueError, match=rf"(?s)({words}).*Received"):
        row.function(**call, weights=weights)
    if layer is None:
        return
    call = arguments_with(layer, value, place)
    made = row.make(units=U)
    made.build((B, T, D))
    if value.dtype == "int32":
        return  # A layer casts whole numbers.
    with pytest.raises(ValueError, match=rf"(?s){layer}|ndim=3|{D}"):
        made(**call)


@pytest.mark.parametrize("name", sorted(STATISTICS))
def test_moving_statistics(name):
    row, rng = BY_NAME["BNLSTM"], np.random.default_rng(0)
    letters = ARRAYS[name].letters
    width = SIZES[letters[1]]
    site = name.partition("_")[0]
    weights = {
        "kernel": rng.normal(size=(D, 4 * U)),
        "recurrent_kernel": rng.normal(size=(U, 4 * U)),
        f"{site}_gamma": np.ones(width),
        f"{site}_moving_mean": np.ones((2, width)),
        f"{site}_moving_variance": np.ones((2, width)),
    }
    x = np.ones((B, T, D), "float32")
    row.function(x, None, weights, learn=False)
    for shape in ((2, width + 1), (0, width), (width,), (2, width, 1)):
        with pytest.raises(ValueError, match=f"must hold {name} of shape"):
            wrong = weights | {name: np.ones(shape)}
            row.function(x, None, wrong, learn=False)
