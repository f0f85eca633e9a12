"""Zoneout of cells by themselves: what is drawn, when, and how often."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS, B, D, T, U

import keras_ln
from keras_ln.engine.zoneout import COUNTS_TO, counted


def to_float32(x):
    return to_numpy(keras.ops.cast(x, "float32"))


def example(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


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


def seed_of(cell):
    return to_numpy(cell.seed_generator.state.value).tolist()


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
@pytest.mark.parametrize("alone", [False, True])
def test_inference_draws_nothing(row, alone):
    layer = row.make(zoneout=0.5, seed=1)
    if alone:
        arguments = {"max_steps": T} if row.batch_statistics else {}
        layer = keras.layers.RNN(cell_of(row.name, **arguments))
    x = example(B, T, D)
    layer(x)
    before = seed_of(layer.cell)
    layer(x, training=False)
    assert seed_of(layer.cell) == before
    if not (alone and row.batch_statistics):
        layer(x, training=True)
        layer(x, training=False)
        assert seed_of(layer.cell) == [before[0], before[1] + 1]


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
        close(found, expected, rtol=1e-6)
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


@pytest.mark.parametrize(
    "arguments", [{"normalize": ()}, {"max_steps": 4, "trainable": False}]
)
def test_bn_lstm_goes_on_choosing_in_half_precision(arguments):
    """Beyond what the dtype counts to: 257 is 256 in bfloat16."""
    units, steps = 30, 8
    cell = cell_of("BNLSTM", units=units, dtype="mixed_bfloat16", **arguments)
    layer = keras.layers.RNN(cell, return_sequences=True)
    states = [np.zeros((2, units)), np.zeros((2, units)), np.full((2, 1), 252)]
    y = layer(example(2, steps, D), initial_state=states, training=True)
    y = to_float32(y)
    kept = y[:, 1:] == y[:, :-1]
    for t in range(steps - 2):
        assert (kept[:, t] != kept[:, t + 1]).any(), t


def test_bn_lstm_stays_at_its_last_statistics_in_half_precision():
    """Where its counter starts again."""
    cell = cell_of("BNLSTM", zoneout=0.0, max_steps=3, dtype="mixed_bfloat16")
    cell.build((None, D))
    for k, weight in enumerate(cell.non_trainable_weights):
        shape = tuple(weight.shape)
        if len(shape) == 2:
            values = np.random.default_rng(k).uniform(0.5, 2.0, shape)
            weight.assign(values)
    x = keras.ops.cast(keras.ops.convert_to_tensor(example(2, D)), "bfloat16")
    outputs = []
    for start in (2, 254):
        counter = keras.ops.full((2, 1), start, dtype="bfloat16")
        states = [*cell.get_initial_state(2)[:2], counter]
        for _ in range(5):
            h, states = cell(x, states)
        outputs.append(to_float32(h))
    np.testing.assert_array_equal(*outputs)


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
