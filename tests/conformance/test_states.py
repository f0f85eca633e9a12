"""States: kept between calls, and sequences of which several are in a row."""

import keras
import numpy as np
import pytest
from arrays import close, to_numpy
from backend_gradients import BACKEND
from descriptors import BY_NAME, SEQUENCE_LAYERS, randomize
from recurrence import RESETS, Problem
from tolerances import FLOAT64

import keras_ln

BNLSTM = BY_NAME["BNLSTM"]


@pytest.mark.parametrize("use_fused", [False, "auto"])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_stateful(row, use_fused):
    """Two halves of a sequence, one after the other, are the whole."""
    problem = Problem(row, {"return_sequences": True, "use_fused": use_fused})
    whole = problem.outputs(problem.layer())[0]
    layer = problem.layer(stateful=True)
    first, second = (
        to_numpy(layer(problem.x[:, half]))
        for half in (slice(0, 3), slice(3, 4))
    )
    close(np.concatenate([first, second], axis=1), whole, **FLOAT64)
    kept = [to_numpy(state).copy() for state in layer.states]
    close(kept[0], whole[:, -1], **FLOAT64)
    layer.reset_state()
    assert all((to_numpy(state) == 0.0).all() for state in layer.states)
    again = to_numpy(layer(problem.x[:, :3]))
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_stateful_training(row):
    """The gradient does not reach back beyond the call."""
    problem = Problem(row, {"stateful": True}, training=True)
    layer = problem.layer()
    problem.outputs(layer)
    states = layer.states[: row.state_count]
    carried = [to_numpy(state).copy() for state in states]
    result = problem.run(layer)
    twin = Problem(row, {}, training=True, given_states=True)
    twin.states = carried
    expected = twin.run(twin.layer())
    close(result.outputs[0], expected.outputs[0], **FLOAT64)
    close(expected.gradients, result.gradients, **FLOAT64)


ROWS = [row for row in SEQUENCE_LAYERS if not row.batch_statistics]
B, T, D, U = 3, 4, 5, 4


if BACKEND == "jax":

    @pytest.mark.every_backend
    def test_vmap():
        import jax

        problem = Problem(
            BY_NAME["LNLSTM"],
            {"return_sequences": True},
            reset=RESETS["mixed"],
            given_resets=True,
        )
        layer = problem.layer()

        def one(x, reset, h, c):
            states = [h[None], c[None]]
            return layer(x[None], reset=reset[None], reset_state=states)[0]

        found = jax.vmap(one)(problem.x, problem.reset, *problem.resets)
        whole = layer(
            problem.x, reset=problem.reset, reset_state=problem.resets
        )
        close(found, whole, **FLOAT64)


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("use_fused", ["auto", False])
def test_there_is_no_h_to_drop(row, use_fused):
    """Every step is the first of a sequence."""
    problem = Problem(row, {"use_fused": use_fused, "return_sequences": True})
    reset = np.ones((B, T))
    dropped = problem.layer(recurrent_dropout=0.9)
    close(
        dropped(problem.x, reset=reset, training=True),
        problem.layer()(problem.x, reset=reset),
        **FLOAT64,
    )


def test_states_go_on_from_call_to_call():
    """`stateful` keeps states between calls; flags end them in a call."""
    layer = BY_NAME["LNLSTM"].make(
        dtype="float64", stateful=True, return_sequences=True
    )
    x = np.random.default_rng(0).normal(size=(B, 2 * T, 3))
    reset = np.zeros((B, 2 * T), bool)
    reset[0, [1, T]] = reset[1, T + 2] = True
    layer.build((B, T, 3))
    randomize(layer)
    begin = [np.full((1, layer.units), value) for value in (0.3, -0.2)]
    halves = [
        to_numpy(layer(x[:, half], reset=reset[:, half], reset_state=begin))
        for half in (slice(0, T), slice(T, 2 * T))
    ]
    layer.reset_state()
    whole = to_numpy(layer(x, reset=reset, reset_state=begin))
    found = np.concatenate(halves, axis=1)
    close(found, whole, **FLOAT64)
    assert np.abs(np.diff(found, axis=1)).min() > 0


def packed_model():
    """Packed tokens, padded at the end, to one output per step."""
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    reset = keras.Input((None,), dtype="bool", name="reset")
    x = keras.layers.Embedding(7, 3, mask_zero=True)(tokens)
    y = keras_ln.LNLSTM(U, return_sequences=True)(x, reset=reset)
    back = keras_ln.LNLSTM(U, return_sequences=True, go_backwards=True)
    z = keras.ops.flip(back(x, reset=reset), axis=1)
    y = keras.layers.Concatenate()([y, z])
    return keras.Model([tokens, reset], keras.layers.Dense(2)(y))


def test_a_functional_model(tmp_path):
    """Flags are an input; the embedding's mask is used; it can be saved."""
    model = packed_model()
    tokens = np.array([[1, 2, 3, 4, 5, 6, 0], [3, 1, 4, 1, 5, 0, 0]], "int32")
    reset = np.array([[1, 0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0, 0]], bool)
    found = model.predict([tokens, reset], verbose=0)
    short = model.predict([tokens[:1, 2:5], reset[:1, 2:5]], verbose=0)
    close(found[:1, 2:5], short, atol=1e-5)
    # Backwards the padding comes first. The mask leaves it out.
    ends = model.predict([tokens[1:, 3:5], reset[1:, 3:5]], verbose=0)
    close(found[1:, 3:5], ends, atol=1e-5)
    model.compile("sgd", "mse")
    model.fit([tokens, reset], np.zeros((2, 7, 2)), epochs=1, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    close(
        loaded.predict([tokens, reset], verbose=0),
        model.predict([tokens, reset], verbose=0),
        atol=1e-6,
    )


def test_without_initial_states_an_op_begins_as_after_a_reset():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(B, T, D)), rng.normal(size=(D, U))
    weights = {"kernel": kernel, "recurrent_kernel": rng.normal(size=(U, U))}
    start, reset = rng.normal(size=(1, U)), RESETS["mixed"]
    found, wanted = (
        keras_ln.ops.ln_simple_rnn(
            x, states, weights, reset=reset, reset_state=start
        )[1]
        for states in (None, np.repeat(start, B, axis=0))
    )
    close(found, wanted, **FLOAT64)


def test_flags_of_any_kind():
    """Zeros and ones of any dtype, and nested lists."""
    layer = BY_NAME["LNGRU"].make(dtype="float64", return_sequences=True)
    x, flags = np.random.default_rng(0).normal(size=(B, T, 2)), RESETS["mixed"]
    wanted = to_numpy(layer(x, reset=flags))
    dtypes = ("uint8", "int32", "float32", "float64")
    for reset in (flags.tolist(), *map(flags.astype, dtypes)):
        np.testing.assert_array_equal(to_numpy(layer(x, reset=reset)), wanted)
