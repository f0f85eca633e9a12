"""Dropout and zoneout, against oracles that are given the same choices."""

import keras
import numpy as np
import pytest
from arrays import close, example, to_numpy
from backend_gradients import BACKEND, forward
from descriptors import BY_NAME, CELLS, SEQUENCE_LAYERS, B, D, T, U
from layer_calls import drawn_by, shares, zoned
from pairwise import one_everywhere
from recurrence import MASKS, Problem, compare
from tolerances import FLOAT64

import keras_ln
from keras_ln.engine import zoneout
from keras_ln.engine.zoneout import COUNTS_TO, counted


def to_float32(x):
    return to_numpy(keras.ops.cast(x, "float32"))


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
            assert name not in drawn
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


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_without_zoneout_nothing_changes(row, training):
    """The same program, and no number is drawn."""
    zeros = dict.fromkeys(shares(row), 0.0)
    plain, layer = row.make(seed=3), row.make(seed=3, **zeros)
    assert layer.as_problem() == plain.as_problem()
    assert layer.cell.zoneouts((B, T, U), training) == {}
    assert layer.cell.state_size == plain.cell.state_size
    x = np.ones((B, T, D), "float32")
    state = layer.cell.seed_generator.state
    before = to_numpy(state.value).copy()
    layer(x, training=training)
    np.testing.assert_array_equal(to_numpy(state.value), before)
    # Nor at inference with it.
    layer = row.make(**zoned(row, seed=3))
    state = layer.cell.seed_generator.state
    for drawn, training in enumerate((False, True)):
        layer(x, training=training)
        assert to_numpy(state.value)[1] == before[1] + drawn


class Outer(keras.layers.Layer):
    """A cell that does no more than the one inside."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner
        self.state_size, self.output_size = inner.state_size, inner.output_size

    def build(self, input_shape):
        self.inner.build(input_shape)

    def get_initial_state(self, batch_size=None):
        return self.inner.get_initial_state(batch_size)

    def call(self, inputs, states, training=False):
        return self.inner(inputs, states, training=training)


class DrawsAnew(keras.layers.RNN):
    """What the guide shows for such a cell."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        if training:
            self.cell.inner.forget_dropout_masks()
        return super().call(sequences, initial_state, mask, training)


def cell_of(name, **arguments):
    return BY_NAME[f"{name}Cell"].make(
        **{"zoneout": 0.5, "seed": 1, **arguments}
    )


if BACKEND == "jax":

    @pytest.mark.every_backend
    @pytest.mark.parametrize("alone", [False, True])
    def test_inference_in_a_program_of_jax(alone):
        import jax

        layer = keras_ln.LNLSTM(U, zoneout=0.1)
        if alone:
            layer = keras.layers.RNN(keras_ln.LNLSTMCell(U, zoneout=0.1))
        x = example(B, T, D)
        expected = layer(x)
        found = jax.jit(lambda x: layer(x, training=False))(x)
        close(found, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(layer(x), expected)


@pytest.mark.parametrize("dtype", COUNTS_TO)
def test_counters_count_as_far_as_they_can(dtype):
    top = COUNTS_TO[dtype]
    start = np.array([0, top - 2, top - 1, top])
    counter = keras.ops.cast(keras.ops.convert_to_tensor(start), dtype)
    for again in (0, 7):
        found = to_float32(counted(counter, again))
        np.testing.assert_array_equal(found, [1, top - 1, top, again])
    # One more is the same number there.
    assert to_float32(counter + 1)[-1] == top


def kept_of_a_step(cell, x):
    """What keeps its state of zero in a training step from there."""
    h, _ = cell(x, cell.get_initial_state(len(x)), training=True)
    return to_numpy(h) == 0


def test_a_loop_of_ones_own_draws_anew_where_it_says_so():
    cell = cell_of("LNGRU", units=50)
    x = example(2, D)
    first, same = (kept_of_a_step(cell, x) for _ in range(2))
    np.testing.assert_array_equal(first, same)
    assert 20 < first.sum() < 80
    for _ in range(2):
        cell.forget_dropout_masks()
        other = kept_of_a_step(cell, x)
        assert (first != other).any()
        first = other


if BACKEND == "tensorflow":

    @pytest.mark.every_backend
    def test_a_compiled_loop_draws_anew():
        """Though it is traced once, before any step has chosen."""
        import tensorflow as tf

        cell = cell_of("LNGRU", units=50)
        x = tf.constant(example(2, D))
        cell.build(x.shape)

        @tf.function
        def step():
            cell.forget_dropout_masks()
            return cell(x, cell.get_initial_state(2), training=True)[0]

        kept = [to_numpy(step()) == 0 for _ in range(3)]
        assert (kept[0] != kept[1]).any()
        assert (kept[1] != kept[2]).any()


@pytest.mark.every_backend
def test_a_cell_in_a_cell():
    """The same choices in every call, until it is told to draw anew."""
    x = example(6, T, D)
    losses = []
    for cls in (keras.layers.RNN, DrawsAnew):
        layer = cls(Outer(cell_of("LNGRU")))
        model = keras.Sequential([keras.Input((T, D)), layer])
        # It changes no weights, so choices alone make a difference.
        model.compile(keras.optimizers.SGD(0.0), "mse")
        history = model.fit(
            x, np.zeros((6, U)), epochs=3, shuffle=False, verbose=0
        ).history
        losses.append(len(set(history["loss"])))
        model.predict(x, verbose=0)
    assert losses == [1, 3]


@pytest.mark.every_backend
@pytest.mark.parametrize("use_fused", ["auto", False])
def test_fit_draws_anew_in_every_step(use_fused):
    """Over sequences of unknown length, where a framework has them."""
    row = BY_NAME["LNLSTM"]
    inputs = keras.Input((None, D))
    layer = row.make(**shares(row), seed=1, use_fused=use_fused)
    model = keras.Model(inputs, layer(inputs))
    # It changes no weights, so choices alone make a difference.
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = example(6, T, D)
    history = model.fit(
        x, np.zeros((6, U)), batch_size=6, epochs=3, verbose=0
    ).history["loss"]
    assert len(set(history)) == 3
    assert model.evaluate(x, np.zeros((6, U)), verbose=0) == model.evaluate(
        x, np.zeros((6, U)), verbose=0
    )


CELL_ROWS = [row for row in CELLS if not row.batch_statistics]


@pytest.mark.parametrize("row", CELL_ROWS, ids=str)
def test_a_cell_by_itself_chooses_at_every_step(row):
    """Of h alone, whose old values are then in its outputs."""
    units, steps = 20, 8
    layer = keras.layers.RNN(
        row.make(units=units, zoneout=0.5, seed=1), return_sequences=True
    )
    x = example(4, steps, D)
    first, second = (to_numpy(layer(x, training=True)) for _ in range(2))
    for y in (first, second):
        before = np.concatenate([np.zeros_like(y[:, :1]), y[:, :-1]], 1)
        kept = y == before
        # 640 draws: a standard deviation of 0.02.
        assert 0.4 < kept.mean() < 0.6
        for axis in range(3):
            both = (kept & np.roll(kept, 1, axis)).mean()
            assert 0.15 < both < 0.35, axis
    assert (first != second).any(), "new choices in every call"


RATE = 0.4


@pytest.mark.parametrize("kind", ["dropout", "recurrent_dropout", "zoneout"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_seed_and_inference(row, kind):
    def outputs(seed, training, calls=1, **arguments):
        problem = Problem(
            row,
            {kind: RATE, "seed": seed, "return_sequences": True, **arguments},
            given_states=True,
            training=training,
        )
        layer = problem.layer()
        return [problem.outputs(layer)[0] for _ in range(calls)]

    first, second = outputs(7, True, calls=2)
    assert abs(first - second).max() > 1e-3, "a new mask in every call"
    np.testing.assert_array_equal(outputs(7, True)[0], first)
    assert abs(outputs(8, True)[0] - first).max() > 1e-3
    inferred, none = outputs(7, False)[0], outputs(7, False, **{kind: 0.0})[0]
    np.testing.assert_array_equal(outputs(7, False)[0], inferred)
    # Zoneout leaves its expectation, the share.
    assert (abs(inferred - none).max() > 1e-3) == (kind == "zoneout")


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_the_oracle_is_given_what_is_dropped(row, use_fused):
    """Read off the gradient of x: of each row its own, in all steps."""
    arguments = {"dropout": RATE, "use_fused": use_fused}
    problem = Problem(row, arguments, training=True, shape=(40, 3, 6))
    layer = problem.layer()
    result = problem.run(layer)
    kept = (result.gradients["x"] != 0.0).any(axis=1)
    # 240 draws: a standard deviation of 0.032.
    assert abs((1 - kept).mean() - RATE) < 0.13
    assert len(np.unique(kept, axis=0)) > 10
    masks = {"dropout_mask": kept / (1.0 - RATE)}
    outputs, _ = problem.oracle(problem.arrays(layer), **masks)
    close(result.outputs, outputs, **FLOAT64)


@pytest.mark.parametrize("row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM"))
def test_compiled_calls_draw_anew(row):
    """A mask must not be frozen into the compiled function."""
    problem = Problem(row, {"recurrent_dropout": RATE}, given_states=True)
    problem.mask = MASKS["left"]
    problem.training = True
    layer = problem.layer()
    values = [problem.run(layer, compiled=True).outputs[0] for _ in range(2)]
    assert abs(values[0] - values[1]).max() > 1e-3
    silent = forward(layer, training=False)
    options = {"initial_state": problem.states, "mask": problem.mask}
    once, again = (silent(problem.x, **options)[0] for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_masks_of_the_cell_alone_are_not_used_by_the_layer():
    x = np.ones((3, 4, 2), "float32")
    layer = keras_ln.LNLSTM(5, dropout=RATE, recurrent_dropout=RATE)
    layer(x)
    states = layer.cell.get_initial_state(3)
    layer.cell(x[:, 0], states, training=True)
    layer(x)
    assert layer(x[:2], training=True).shape == (2, 5)


class AlwaysDropping(keras_ln.LNLSTMCell):
    """Drops at inference too: Monte Carlo dropout."""

    def step(self, projected, states, weights, recurrent_mask):
        mask = self.get_recurrent_dropout_mask(states[0])
        return super().step(projected, states, weights, mask)


class Uncertain(keras_ln.LNLSTM):
    cell_class = AlwaysDropping


@pytest.mark.every_backend
def test_monte_carlo_dropout():
    """Each call has a mask of its own, for as many rows as it has."""
    x = np.ones((3, 4, 2), "float32")
    layer = Uncertain(5, recurrent_dropout=RATE)
    first, second = to_numpy(layer(x)), to_numpy(layer(x))
    assert abs(first - second).max() > 1e-3
    assert layer(x[:1]).shape == (1, 5)
