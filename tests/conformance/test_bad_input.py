"""Wrong arguments fail early, and the message says which and why."""

import keras
import pytest
from descriptors import BY_NAME, ROWS, SEQUENCE_LAYERS, B, D, T, U
from refusals import refused, x

import keras_ln

RECURRENT = [row for row in ROWS if row.is_recurrent or row.is_cell]


@pytest.mark.parametrize("site", ["kernel", "recurrent"])
def test_sum_stands_in_place_of_both(site):
    weights = {
        **{"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)},
        **{"sum_gamma": x(4 * U), f"{site}_gamma": x(4 * U)},
    }
    with refused("`weights`", "may hold", f"'{site}_gamma'"):
        keras_ln.ops.ln_lstm(x(B, T, D), None, weights)


@pytest.mark.parametrize(
    "row", [row for row in RECURRENT if row.state_count == 1], ids=str
)
def test_zoneout_of_a_state_that_is_not_there(row):
    weights = {name: x(*shape) for name, shape in row.weights.items()}
    with refused("`cell_zoneout`", f"{row.op} has no state c", "0.1"):
        row.function(x(B, T, D), None, weights, cell_zoneout=0.1)


@pytest.mark.parametrize("name", ["zoneout", "cell_zoneout"])
@pytest.mark.parametrize(
    "value, words",
    [
        (1.0, (r"number in \[0, 1\)", "=1.0")),
        (x(B, T, U), ("bool tensor", "dtype float32")),
        (x(T, B, U, dtype=bool), ("batch, time, units", r"\(4, 3, 3\)")),
        (x(B, U, dtype=bool), ("batch, time, units", r"\(3, 3\)")),
    ],
    ids=lambda value: "",
)
def test_zoneout_of_the_functions(name, value, words):
    weights = {"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)}
    with refused(f"`{name}`", *words, "Received"):
        keras_ln.ops.ln_lstm(x(B, T, D), None, weights, **{name: value})


@pytest.mark.parametrize("zoneout", [0.0, 0.1])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_unroll_needs_the_length(row, zoneout):
    layer = row.make(unroll=True, zoneout=zoneout)
    with refused("`unroll`", "steps is unknown", r"shape \(None, None, 2\)"):
        layer(keras.Input((None, D)))


@pytest.mark.parametrize("shape", [(B, D), (B, T, D, 1)])
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_rank_of_a_sequence(row, shape):
    numbers = ", ".join(map(str, shape))
    for build in (
        lambda layer: layer(x(*shape)),
        lambda layer: layer(keras.Input(shape[1:])),
        lambda layer: layer.build(shape),
    ):
        with refused("ndim=3|rank 3", f"ndim={len(shape)}|{numbers}"):
            build(row.make())


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_feature_size_changed(row):
    layer = row.make()
    layer(x(B, T, D))
    for call in (
        lambda: layer(x(B, T, D + 1)),
        lambda: layer(keras.Input((T, D + 1))),
    ):
        with refused(str(D), str(D + 1)):
            call()


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_unknown_feature_size(row):
    with refused("sequences", "None", "keras.Input"):
        row.make()(keras.Input((T, None)))
    with refused("sequences", "None", "keras.Input"):
        row.make().build((B, T, None))


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_initial_state(row):
    layer = row.make()
    right = [x(B, U)] * row.state_count
    for states in (
        right + [x(B, U)],
        right[1:] + [x(B, U + 1)],
        right[1:] + [x(B + 1, U)],
        right[1:] + [x(B)],
        [],
    ):
        with refused("`initial_state`", str(row.state_count), "Received"):
            layer(x(B, T, D), initial_state=states)
    with refused("`initial_state`", "list of tensors", "a dict with h"):
        layer(x(B, T, D), initial_state={"h": right[0]})
    assert layer(x(B, T, D), initial_state=right).shape == (B, U)


@pytest.mark.parametrize("row", RECURRENT, ids=str)
def test_complex_input(row):
    states = row.cell_states()
    options = {} if states is None else {"states": states}
    with refused("floating-point", "complex64"):
        row.make()(x(*row.input_shape, dtype="complex64"), **options)


@pytest.mark.parametrize(
    "first_step",
    [-1, 1.0, True, "1", x(dtype="float32"), x(1, dtype="int32")],
    ids=repr,
)
def test_first_step(first_step):
    expected = "a whole number >= 0 or an integer tensor of shape"
    layer = BY_NAME["BNLSTM"].make()
    layer.build((B, T, D))
    for sequences in (x(B, T, D), keras.Input((T, D))):
        with refused("`first_step`", expected, "Received: .*first_step"):
            layer(sequences, first_step=first_step)
    weights = {"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)}
    with refused("`first_step`", expected, "Received: .*first_step"):
        keras_ln.ops.bn_lstm(
            x(B, T, D), None, weights, learn=True, first_step=first_step
        )


def test_max_steps_from_the_data():
    layer = keras_ln.BNLSTM(U)
    layer.build((B, T, D))
    rows = {w.shape[0] for w in layer.non_trainable_weights}
    assert rows == {T}
    assert layer.get_config()["max_steps"] is None
    with refused("max_steps", "unknown|None|known"):
        keras_ln.BNLSTM(U)(keras.Input((None, D)))
    with refused("max_steps"):
        keras_ln.BNLSTMCell(U).build((B, D))


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_a_sequence_without_steps(row):
    for use in (
        lambda layer: layer(x(2, 0, 3)),
        lambda layer: layer(keras.Input((0, 3))),
        lambda layer: layer.build((2, 0, 3)),
        lambda layer: [
            layer.build((None, None, 3)),
            layer(keras.Input((0, 3))),
        ],
    ):
        for use_fused in (True, False):
            with refused("sequences", "at least one time step", r", 0, 3\)"):
                use(row.make(use_fused=use_fused))


@pytest.mark.parametrize(
    "make", [lambda: keras_ln.BNLSTM(U), keras_ln.RecurrentBatchNorm]
)
def test_statistics_without_steps(make):
    for shape in ((B, 0, D), (None, 0, D)):
        with refused("`sequences`|`inputs`", "one time step", f"0, {D}"):
            make().build(shape)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_state": [x(B, U)] * 2}, "`reset_state` .* without `reset`"),
        (
            {"reset": x(B, T), "reset_state": [x(B, U)]},
            r"`reset_state` (of LNLSTM )?must be 2 tensors",
        ),
        # They are the initial states too, which nobody has given.
        (
            {"reset": x(B, T), "reset_state": [x(B + 1, U)] * 2},
            "Argument `reset_state",
        ),
        (
            {"reset": x(B, T), "reset_state": {"h": x(B, U)}},
            "`reset_state` must be .* list of tensors. Received: a dict with h",
        ),
    ],
)
def test_bad_resets(options, message):
    with pytest.raises(ValueError, match=message):
        keras_ln.LNLSTM(U)(x(B, T, D), **options)
    weights = {"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)}
    with pytest.raises(ValueError, match=message):
        keras_ln.ops.ln_lstm(x(B, T, D), None, weights, **options)


def test_states_that_are_counted_as_resets():
    """As many tensors in all as a call that was right had."""
    layer, state, reset = keras_ln.LNLSTM(U), x(B, U), x(B, T)

    def call(states, resets):
        given = {"initial_state": states, "reset_state": resets}
        layer(x(B, T, D), reset=reset, **given)

    call([state] * 2, [state] * 2)
    with pytest.raises(ValueError, match="`initial_state` of LNLSTM must be 2"):
        call([state], [state] * 3)
    with pytest.raises(ValueError, match="`initial_state` of LNLSTM must be 2"):
        call([state] * 3, [state])


@pytest.mark.parametrize("name", ["reset", "reset_state"])
def test_batch_statistics_refuse_resets(name):
    with pytest.raises(ValueError, match=f"`{name}` .* BNLSTM"):
        keras_ln.BNLSTM(U)(x(B, T, D), **{name: x(B, T)})


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        (keras.Input((T,), dtype="string"), "must be bool, or zeros and ones"),
        (keras.Input((T + 1,), dtype="bool"), "must have the shape"),
    ],
)
def test_bad_symbolic_resets(reset, message):
    with pytest.raises(ValueError, match=f"`reset` {message}"):
        keras_ln.LNLSTM(U)(keras.Input((T, D)), reset=reset)
