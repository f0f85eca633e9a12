"""Zoneout: against oracles that are given the same choices.

The choices that a layer draws are those of a twin with the same seed.
"""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from descriptors import SEQUENCE_LAYERS, B, D, T, U, randomize
from recurrence import Problem, compare
from zoneout_choices import drawn_by, shares, zoned

from keras_ln.engine import zoneout


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_oracle_is_given_what_is_drawn(row, use_fused):
    arguments = zoned(row, seed=3, use_fused=use_fused)
    problem = Problem(row, arguments, training=True)
    drawn = drawn_by(problem.layer(), problem.shape)
    assert all(0 < made.mean() < 1 for made in drawn.values())
    layer = problem.layer()
    result = problem.run(layer)
    problem.choices = drawn
    outputs, wanted, _ = problem.expected(layer)
    compare(result, outputs, wanted)


@pytest.mark.parametrize("probabilities", [(0.3, 0.15), (0.2, 0.0), (0.0, 0.6)])
def test_choices(probabilities):
    """Of the given frequency, and independent: of 20,000 each."""
    given = dict(zip(("zoneout", "cell_zoneout"), probabilities, strict=True))
    drawn = zoneout.draw(given, (20, 50, 20), keras.random.SeedGenerator(1))
    found = {}
    for name, probability in given.items():
        if not probability:
            assert drawn[name] == 0.0
            continue
        found[name] = to_numpy(drawn[name])
        assert found[name].dtype == bool
        # A standard deviation of 0.0035.
        assert abs(found[name].mean() - probability) < 0.014
        # Half a row away: of the same number.
        for axis, shift in ((0, 1), (1, 1), (2, 1), (2, 10)):
            moved = np.roll(found[name], shift, axis)
            both = (found[name] & moved).mean()
            assert abs(both - probability**2) < 0.014
    if len(found) == 2:
        h, c = found.values()
        assert abs((h & c).mean() - np.prod(probabilities)) < 0.012


def test_probabilities_are_no_multiples_of_the_levels():
    """Of 2048: 0.4 levels are seen in 40 of 100,000 choices each."""
    shares = {"zoneout": 0.4 / 2048, "cell_zoneout": 2047.6 / 2048}
    drawn = zoneout.draw(shares, (1000, 100, 21), keras.random.SeedGenerator(1))
    h, c = (to_numpy(made).sum() for made in drawn.values())
    # 410 of 2,100,000 expected, a standard deviation of 20.
    assert abs(h - 410) < 80
    assert abs(2_100_000 - c - 410) < 80


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_without_zoneout_nothing_changes(row, training):
    """The same program, and no number is drawn."""
    zeros = dict.fromkeys(shares(row), 0.0)
    plain, layer = row.make(seed=3), row.make(seed=3, **zeros)
    assert layer.as_problem() == plain.as_problem()
    assert layer.cell.zoneouts((B, T, U), training) == zeros
    assert layer.cell.state_size == plain.cell.state_size
    x = np.ones((B, T, D), "float32")
    before = to_numpy(layer.cell.seed_generator.state.value).copy()
    layer(x, training=training)
    after = to_numpy(layer.cell.seed_generator.state.value)
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_resumed_training_goes_on_with_its_choices(row):
    """Where the seed's state, a variable, is kept, as it is for dropout."""
    inputs = keras.Input((T, D))

    def model_of(seed):
        layer = row.make(**zoned(row, seed=seed))
        return keras.Model(inputs, layer(inputs))

    model, other = randomize(model_of(1)), model_of(2)
    x = np.random.default_rng(1).normal(size=(B, T, D)).astype("float32")
    model(x, training=True)
    for new, old in zip(other.variables, model.variables, strict=True):
        new.assign(old)
    expected, found = (to_numpy(m(x, training=True)) for m in (model, other))
    close(found, expected, rtol=1e-6)
    assert (to_numpy(model(x, training=True)) != expected).any()
