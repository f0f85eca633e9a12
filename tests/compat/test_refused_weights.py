"""Weights that do not fit, or are no arrays, are refused before any is set."""

import ml_dtypes
import numpy as np
import pytest
from compat.loaders import LOADERS, D, loader

from keras_ln import compat

BAD_DTYPES = ("int32", "int64", "bool", "complex64", "complex128", "U9", "O")


@pytest.mark.parametrize("name", ["tfa_lstm", "haste_lstm", "fastrnns_lstm"])
def test_gates_with_a_mean_of_their_own_are_refused(name):
    """Their gammas would fit."""
    load, make, shapes = loader(name)
    arrays = {key: np.ones(shape) for key, shape in shapes.items()}
    load(make(groups="all"), arrays)
    other = make(groups="gate")
    with pytest.raises(ValueError, match="groups='all'.*groups='gate'"):
        load(other, arrays)
    assert not other.built


def test_every_loader_is_tried():
    assert {n for n in compat.__all__ if n.startswith("load_")} == {*LOADERS}


@pytest.mark.promise("weights of another library have another dtype or shape")
@pytest.mark.parametrize("name", LOADERS)
def test_weights_that_are_refused_change_nothing(name):
    """Whichever it is, of whatever dtype or shape it is."""
    load, make, shapes = loader(name.removeprefix("load_"))
    rng = np.random.default_rng(0)
    right = {n: rng.normal(size=shape) for n, shape in shapes.items()}
    layer, fresh = make(), make()
    layer.build((None, None, D))
    before = layer.get_weights()
    for own, array in right.items():
        wrong = [array.astype(dtype) for dtype in BAD_DTYPES]
        wrong += [None, "text", [[1.0], [1.0, 2.0]]]
        shape = array.shape
        bad_shapes = {(), (0,), (1,), (*shape[:-1], shape[-1] + 1)}
        bad_shapes |= {(*shape, 1), (1, *shape), (*shape[:-1], 0), shape[1:]}
        for given in wrong:
            message = (
                rf"`weights` must hold {own}\b.* as an array of float16, "
                r"bfloat16, float32 or float64\. Received: "
            )
            for each in (layer, fresh):
                with pytest.raises(ValueError, match=message):
                    load(each, right | {own: given})
        for size in bad_shapes:
            with pytest.raises(ValueError, match="`weights` must"):
                load(layer, right | {own: np.ones(size)})
    assert not fresh.built
    np.testing.assert_equal(layer.get_weights(), before)
    # Halves are loaded as what they stand for.
    for dtype in ("float16", ml_dtypes.bfloat16):
        halves = {n: array.astype(dtype) for n, array in right.items()}
        load(layer, halves)
        load(fresh, {n: a.astype("float32") for n, a in halves.items()})
        np.testing.assert_equal(layer.get_weights(), fresh.get_weights())


def test_weights_that_are_no_list():
    layer = loader("tfa_lstm")[1]()
    with pytest.raises(ValueError, match="9 arrays, or 8 .*Received: NoneType"):
        compat.load_tfa_lstm(layer, None)
    with pytest.raises(ValueError, match="`forget_bias` must be a finite"):
        load, make, shapes = loader("tf1_lstm")
        load(make(), dict.fromkeys(shapes, 0.0), forget_bias="1")
