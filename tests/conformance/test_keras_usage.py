"""Uses of Keras' own: cells in its RNN, sizes, lengths, one-line calls."""

import sys

import keras
import numpy as np
import pytest
from arrays import close
from backend_gradients import BACKEND
from descriptors import (
    BY_NAME,
    CELLS,
    ROWS,
    SEQUENCE_LAYERS,
    B,
    D,
    T,
    U,
    named_weights,
)
from layer_calls import shares
from pairwise import one_everywhere
from recurrence import MASKS, Problem
from tolerances import FLOAT64
from twins import FAST, OURS, THEIRS, compare

import keras_ln
from keras_ln.engine.implementations import fused_op
from keras_ln.layers.rnn import fast


@pytest.mark.parametrize(
    "row, own",
    [
        *((row, {"seed": 3}) for row in SEQUENCE_LAYERS),
        *((row, shares(row)) for row in SEQUENCE_LAYERS),
        (BY_NAME["LNLSTM"], {"carry_normalized_state": True}),
    ],
    ids=str,
)
def test_cell_in_keras_rnn(row, own):
    """Keras' loop around the cell, without a mask, is our layer."""
    both = {"return_sequences": True, "return_state": True}
    problem = Problem(row, both | own)
    layer = problem.layer()
    cell = BY_NAME[row.cell].make(dtype="float64", **own)
    loop = keras.layers.RNN(cell, **both, dtype="float64")
    loop.build(problem.x.shape)
    loop.set_weights(layer.get_weights())
    expected = problem.run(layer)
    # Cells count steps in one more state for batch statistics and zoneout.
    problem.cotangents += [None] * (
        len(keras.tree.flatten(cell.state_size)) - row.state_count
    )
    result = problem.run(loop)
    close(result.outputs[: len(expected.outputs)], expected.outputs, **FLOAT64)
    close(result.gradients, expected.gradients, **FLOAT64)


@pytest.mark.parametrize("use_fused", ["auto", False])
@pytest.mark.parametrize(
    "row", one_everywhere(SEQUENCE_LAYERS, "LNLSTM", "BNLSTM")
)
def test_unknown_sizes(row, use_fused):
    """A model of unknown batch and length takes any; so do gradients."""
    common = {"return_sequences": True, "use_fused": use_fused}
    problem = Problem(
        row,
        common | {"return_state": True},
        mask=MASKS["middle"],
        given_states=True,
        training=True,
    )
    problem.check(compiled=True, unknown_sizes=True)
    layer = Problem(row, common).layer()
    inputs = keras.Input((None, D), dtype="float64")
    model = keras.Model(inputs, layer(inputs))
    assert model.output_shape == (None, None, U)
    rng = np.random.default_rng(1)
    for batch, steps in ((2, 3), (5, 6), (1, 1)):
        x = rng.normal(size=(batch, steps, D))
        zeros = [np.zeros((batch, U))] * row.state_count
        options = {"training": False} if row.batch_statistics else {}
        expected, *_ = row.oracle(named_weights(layer), x, zeros, **options)
        close(model(x), expected, **FLOAT64)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_an_initial_state_of_one_row_serves_all(row):
    """As one that is learnt; its gradient is the sum over the rows."""
    problem = Problem(row, {"return_sequences": True}, given_states=True)
    layer = problem.layer()
    one = [state[:1] for state in problem.states]
    problem.states = [np.repeat(state, B, axis=0) for state in one]
    every = problem.run(layer)
    problem.states = one
    found = problem.run(layer)
    close(found.outputs[0], every.outputs[0], **FLOAT64)
    for name, gradient in every.gradients.items():
        if name.removeprefix("state").isdigit():
            gradient = gradient.sum(0, keepdims=True)
        close(found.gradients[name], gradient, name, **FLOAT64)


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_a_state_of_one_row_serves_all(row):
    cell, x = row.make(), np.ones((B, D), "float32")
    one, every = (cell(x, cell.get_initial_state(n))[0] for n in (1, B))
    close(one, every, rtol=1e-6)


class StartingFromOnes(keras_ln.LNLSTM):
    """Overrides what Keras calls by name, and its loop over time."""

    def get_initial_state(self, *, batch_size):
        return [state + 1.0 for state in super().get_initial_state(batch_size)]

    def inner_loop(self, sequences, initial_state, mask, training=False):
        return super().inner_loop(
            2.0 * sequences, initial_state, mask, training
        )


def test_overridden_methods_of_keras_rnn(monkeypatch):
    """Those of a class, a layer, or a cell."""
    x = np.ones((B, T, D), "float32")
    layer, plain = StartingFromOnes(U, seed=1), keras_ln.LNLSTM(U, seed=1)
    for one in (layer, plain):
        one.build(x.shape)
    plain.set_weights(layer.get_weights())
    ones = [keras.ops.ones((B, U))] * 2
    expected = plain(2.0 * x, initial_state=ones)
    close(layer(x), expected, rtol=1e-6)
    for owner in (plain, plain.cell):
        with monkeypatch.context() as patch:
            patch.setattr(owner, "get_initial_state", lambda batch_size: ones)
            close(plain(2.0 * x), expected, rtol=1e-6)


if keras.backend.backend() == "torch":

    def test_weights_on_another_device_are_moved():
        import torch

        cell = keras_ln.LNLSTMCell(U)
        cell.build((B, D))
        cell.kernel = torch.empty((D, 4 * U), device="meta")
        assert cell.tensors()["kernel"].is_cpu

    @pytest.mark.parametrize("row", ROWS, ids=str)
    def test_tensors_on_another_device_are_moved(row):
        """As Keras' own layers move them."""
        import torch

        x, options = torch.ones(row.input_shape), {}
        states = [torch.ones(B, U) for _ in range(row.state_count)]
        if row.is_cell:
            counters = [torch.ones(B, 1)] if row.batch_statistics else []
            options = {"states": [*states, *counters]}
        elif row.is_recurrent:
            flags = torch.ones(B, T, dtype=bool)
            options = {"initial_state": states, "mask": flags}
            if not row.batch_statistics:
                options |= {"reset": flags, "reset_state": states}
        # It has shapes alone, and stands for a GPU.
        with keras.device("meta"):
            outputs = keras.tree.flatten(row.make()(x, **options))
        assert all(output.is_meta for output in outputs)


X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype("float32")
STATE = np.zeros((3, 3), "float32")
MASK = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
ORTHOGONAL = ("glorot_normal", "orthogonal", "ones")


def model(inputs, outputs, *data):
    return keras.Model(inputs, outputs)(data[0] if len(data) == 1 else [*data])


def sequential(*layers):
    return keras.Sequential([keras.Input((4, 2)), *layers])


def built(layer, **shapes):
    layer.build(**shapes)
    return layer(X)


def after_reset(layer):
    layer.reset_state()
    layer(X)
    layer.reset_state()
    return layer(X)


def both_ways(layer, **options):
    return keras.layers.Bidirectional(layer, **options)


def over_time(layer):
    return keras.layers.TimeDistributed(layer)(np.stack([X, X], axis=1))


def attributes(layer, *names):
    layer(X)
    return [float(getattr(layer, name)) for name in names]


USES = {
    # Arguments by position, of other types, and those of older files.
    "positional LSTM": lambda k: k.LSTM(
        3, "relu", "hard_sigmoid", True, *ORTHOGONAL, False
    )(X),
    "positional GRU": lambda k: k.GRU(
        3, "relu", "hard_sigmoid", True, *ORTHOGONAL
    )(X),
    "an activation of one's own": lambda k: k.LSTM(
        3, lambda v: keras.ops.tanh(v), "hard_sigmoid"
    )(X),
    # Inputs.
    "float64": lambda k: k.LSTM(3)(X.astype("float64")),
    "no rows": lambda k: k.LayerNormalization()(k.GRU(3)(X[:0])),
    # Masks.
    "mask of floats": lambda k: k.GRU(3)(X, mask=MASK.astype("float32")),
    "mask of rank 3": lambda k: k.LSTM(3)(X, mask=MASK[..., None] > 0),
    "mask as an input": lambda k: model(
        inputs := [keras.Input((4, 2)), keras.Input((4,), dtype="bool")],
        k.LSTM(3)(inputs[0], mask=inputs[1]),
        X,
        MASK > 0,
    ),
    "mask to Keras' RNN": lambda k: keras.layers.RNN(k.GRUCell(3))(
        X, mask=MASK > 0
    ),
    # Initial states.
    "float64 states": lambda k: k.LSTM(3)(
        X, initial_state=[STATE.astype("float64")] * 2
    ),
    "a state without a list": lambda k: k.GRU(3)(X, initial_state=STATE),
    "integer states": lambda k: k.GRU(3)(
        X, initial_state=STATE.astype("int32")
    ),
    "a variable": lambda k: k.GRU(3)(X, initial_state=keras.Variable(STATE)),
    "four states": lambda k: both_ways(k.LSTM(3))(X, initial_state=[STATE] * 4),
    # Shapes, names and weights.
    "built": lambda k: built(k.LSTM(3), sequences_shape=(None, None, 2)),
    "attributes": lambda k: attributes(
        k.LSTM(3, dropout=0.5),
        *("units", "use_bias", "dropout", "recurrent_dropout"),
        *("unit_forget_bias", "return_sequences", "return_state", "stateful"),
        *("go_backwards", "unroll", "zero_output_for_mask", "trainable"),
        *("supports_masking", "supports_jit"),
    ),
    # In Keras' wrappers.
    "Bidirectional of two": lambda k: both_ways(
        k.LSTM(3), backward_layer=k.GRU(3, go_backwards=True)
    )(X),
    "Bidirectional with states": lambda k: both_ways(
        k.LSTM(3, return_state=True)
    )(X)[3],
    "Bidirectional kept": lambda k: after_reset(
        both_ways(k.GRU(3, stateful=True))
    ),
    "TimeDistributed": lambda k: over_time(k.LSTM(3)),
    "TimeDistributed model": lambda k: over_time(
        sequential(k.LSTM(3), k.LayerNormalization())
    ),
    # Cells.
    "a cell": lambda k: (cell := k.LSTMCell(3))(
        X[:, 0], states=cell.get_initial_state(batch_size=3), training=True
    )[0],
    "a cell, its state alone": lambda k: k.GRUCell(3)(X[:, 0], STATE)[0],
}


@pytest.mark.parametrize("layers", [OURS, FAST], ids=["ours", "fast"])
@pytest.mark.parametrize("name", USES)
def test_one_line(name, layers, monkeypatch):
    monkeypatch.setitem(fast._FASTER_WITHOUT_KERNELS, BACKEND, (True, True))
    compare(lambda some: {name: USES[name](some)}, layers, THEIRS)


if BACKEND == "tensorflow":
    import tensorflow as tf

    def compiled_by_itself(layer, steps):
        """How many functions XLA has to compile, in a step of training."""

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True))
            return tape.gradient(loss, [x, *layer.trainable_weights])

        graph = (
            tf.function(step)
            .get_concrete_function(tf.TensorSpec((None, steps, D), "float32"))
            .graph.as_graph_def()
        )
        return sum(f.attr["_XlaMustCompile"].b for f in graph.library.function)

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    @pytest.mark.usefixtures("without_kernels")
    def test_only_a_known_length_is_compiled_for(row, monkeypatch):
        calls = []

        def counted(*args):
            calls.append(args)
            return vjp(*args)

        door = sys.modules[fused_op.__module__]
        vjp = door.vjp
        monkeypatch.setattr(door, "vjp", counted)
        fused_op.cache_clear()
        layer = row.make(return_sequences=True)
        layer.build((None, 5, D))
        assert compiled_by_itself(layer, steps=5) == 2
        by_hand = len(calls)
        assert compiled_by_itself(layer, steps=None) == 0
        # The gradient stays the hand-written one.
        assert len(calls) == 2 * by_hand > 0
        fused_op.cache_clear()

    @pytest.mark.every_backend
    @pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
    @pytest.mark.parametrize("sizes", [(None, None, None), (2, 5, None)])
    def test_open_number_of_features(row, sizes):
        """Data sets made by `from_generator` leave it open; weights tell it."""
        layer = row.make()
        x = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
        layer(x)

        def gradients(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True) ** 2)
            return [loss, *tape.gradient(loss, [x, *layer.trainable_weights])]

        signature = [tf.TensorSpec(sizes, "float32")]
        opened = tf.function(gradients, input_signature=signature)
        known = tf.function(gradients)
        found, expected = (run(tf.constant(x)) for run in (opened, known))
        close(found, expected, rtol=1e-4, atol=1e-5)
        with pytest.raises(tf.errors.InvalidArgumentError):
            opened(tf.constant(x[..., :-1]))
