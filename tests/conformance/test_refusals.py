"""Wrong calls of layers, cells and functions, and what is said of them.

Values of constructor arguments are in test_arguments.py, arrays of the table
in test_arrays.py.
"""

import keras
import numpy as np
import pytest
from descriptors import BY_NAME, CELLS, ROWS, SEQUENCE_LAYERS, B, D, T, U
from refusals import NO_NUMBERS, refused, x

import keras_ln
from keras_ln import ops


def built(row, **arguments):
    layer = row.make(**arguments)
    layer.build((B, T, D))
    return layer


def of_states(change):
    """A call with initial states that do not fit, or that do."""
    return lambda row: row.make()(
        x(B, T, D), initial_state=change([x(B, U)] * row.state_count)
    )


STATES = "`initial_state`", "Received"
NO_STEPS = "sequences", "at least one time step", r", 0, 3\)"
SEQUENCES = {
    "unrolled, of unknown length": (
        lambda row: row.make(unroll=True)(keras.Input((None, D))),
        *("`unroll`", "steps is unknown", r"shape \(None, None, 2\)"),
    ),
    "rank 2": (
        lambda row: row.make()(x(B, D)),
        *("ndim=3|rank 3", f"ndim=2|{B}, {D}"),
    ),
    "rank 4, symbolic": (
        lambda row: row.make()(keras.Input((T, D, 1))),
        *("ndim=3|rank 3", "ndim=4"),
    ),
    "rank 4, built": (
        lambda row: row.make().build((B, T, D, 1)),
        *("rank 3", f"{B}, {T}, {D}, 1"),
    ),
    "other features": (
        lambda row: built(row)(x(B, T, D + 1)),
        *(str(D), str(D + 1)),
    ),
    "other features, symbolic": (
        lambda row: built(row)(keras.Input((T, D + 1))),
        *(str(D), str(D + 1)),
    ),
    "unknown features": (
        lambda row: row.make()(keras.Input((T, None))),
        *("sequences", "None", "keras.Input"),
    ),
    "unknown features, built": (
        lambda row: row.make().build((B, T, None)),
        *("sequences", "None", "keras.Input"),
    ),
    "no steps": (lambda row: row.make()(x(2, 0, 3)), *NO_STEPS),
    "no steps, in the loop": (
        lambda row: row.make(use_fused=False)(x(2, 0, 3)),
        *NO_STEPS,
    ),
    "no steps, symbolic": (
        lambda row: row.make()(keras.Input((0, 3))),
        *NO_STEPS,
    ),
    "no steps, built": (lambda row: row.make().build((2, 0, 3)), *NO_STEPS),
    "a state more": (of_states(lambda right: [*right, x(B, U)]), *STATES),
    "wide states": (of_states(lambda s: [*s[1:], x(B, U + 1)]), *STATES),
    "more rows": (of_states(lambda s: [*s[1:], x(B + 1, U)]), *STATES),
    "states of rank 1": (of_states(lambda s: [*s[1:], x(B)]), *STATES),
    "no state": (of_states(lambda s: []), *STATES),
    "states of None": (
        of_states(lambda s: [None] * len(s)),
        *("`initial_state", "must be a tensor", "Received: None"),
    ),
    "states by name": (
        of_states(lambda s: {"h": s[0]}),
        *("`initial_state`", "list of tensors", "a dict with h"),
    ),
    "stateful, of any batch": (
        lambda row: row.make(stateful=True)(keras.Input((T, D))),
        "batch size must be static",
    ),
    "kernels that are none": (
        lambda row: of_weights(row, kernel=keras.ops.ones(())),
        r"`weights` must hold kernel of shape \(inputs, columns.*shape \(\)\.",
    ),
    "recurrent kernels that are none": (
        lambda row: of_weights(row, recurrent_kernel=keras.ops.ones(())),
        r"`weights` must hold recurrent_kernel of shape .*shape \(\)\.",
    ),
}


def of_weights(row, cell_zoneout=0.0, **weights):
    """A call of the row's function with these among the weights."""
    named = {name: x(*shape) for name, shape in row.weights.items()}
    options = {"learn": False} if row.batch_statistics else {}
    options |= {"cell_zoneout": cell_zoneout} if cell_zoneout else {}
    return row.function(x(B, T, D), None, named | weights, **options)


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_sequences(row, name):
    call, *words = SEQUENCES[name]
    with refused(*words):
        call(row)


@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_arguments_that_a_function_has_not(row):
    other = "step" if row.batch_statistics else "first_step"
    for given, words in (
        (other, rf"ops\.{row.op} has no argument `{other}`.*: {other}=1"),
        ("go_backward", "`go_backward`. Did you mean `go_back"),
        ("states_name", "has no argument `states_name`"),
        ("kernel", r"Pass .* `weights\['kernel'\]`"),
    ):
        with refused(words, error=TypeError):
            row.function(x(B, T, D), None, {}, **{given: 1})
    if row.state_count == 1:
        with refused("`cell_zoneout`", f"{row.op} has no state c", "0.1"):
            of_weights(row, cell_zoneout=0.1)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.is_recurrent or row.is_cell], ids=str
)
def test_complex_input(row):
    states = row.cell_states()
    options = {} if states is None else {"states": states}
    with refused("floating-point", "complex64"):
        row.make()(x(*row.input_shape, dtype="complex64"), **options)


def wrong_states(row, right):
    """States that do not fit, and words of what is said of them."""
    count = len(right)
    of = f"`states` of {row.name} must be {count} tensor"
    for states, received in (
        (right[1:], count - 1),
        ([*right, right[0]], count + 1),
        ([], r"0\."),
        (None, r"1 \(NoneType"),
        ({k: right[0] for k in range(count)}, r"1 \(dict"),
        ([None] * count, rf"{count} \(NoneType"),
    ):
        yield states, (of, f"Received: {received}")
    whole = [keras.ops.cast(state, "int32") for state in right]
    yield whole, (r"`states\[0\]`", "floating-point", "int32")
    if row.state_count == 1 and not row.batch_statistics:
        yield whole[0], ("`states`", r"cast\(states, ", "int32")
    for k, state in enumerate(right):
        rows, size = state.shape
        for shape in ((rows, size + 1), (rows + 1, size), (rows,)):
            states = [*right[:k], keras.ops.ones(shape), *right[k + 1 :]]
            words = (rf"`states\[{k}\]` must have", rf"\({rows}, {size}\)")
            yield states, (*words, shape[0])


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_cells(row):
    with refused("rank 2", f"{B}, {T}, {D}"):
        row.make().build((B, T, D))
    with refused("inputs", "None"):
        row.make().build((B, None))
    cell = row.make()
    right = cell.get_initial_state(B)
    for states, words in wrong_states(row, right):
        with refused(*words):
            cell(x(B, D), states)
    assert cell(x(B, D), right)[0].shape == (B, U)
    with refused("`inputs`", "batch, features", rf"\({B}, {D + 1}\)"):
        cell(x(B, D + 1), right)


STEPWISE = [row for row in SEQUENCE_LAYERS if not row.batch_statistics]


@pytest.mark.parametrize("row", STEPWISE, ids=str)
def test_states_of_a_step(row):
    """Of the sequence op they are `initial_states`."""
    step = getattr(ops, f"{row.op}_step")
    weights = {name: x(*shape) for name, shape in row.weights.items()}
    right = [np.ones((B, U))] * row.state_count
    last = f"`states(\\[{row.state_count - 1}\\])?` must "
    wide, whole = np.ones((B, U + 1)), np.ones((B, U), "int32")
    for kind in (list, tuple, lambda states: [(state,) for state in states]):
        for states, words in (
            ([*right, right[0]], (r"`states` of \w+ must", rf"\({B}, {U}\)")),
            ([*right[1:], wide], ("`states` of", rf"\({B}, {U + 1}\)")),
            ([*right[1:], whole], (last, "int32", r"cast\(states")),
        ):
            with refused(*words):
                step(np.ones((B, D)), kind(states), weights)
        h, _ = step(np.ones((B, D)), kind(right), weights)
        assert tuple(h.shape) == (B, U)
    with refused("`states` must be", "list of tensors", "a dict with h"):
        step(np.ones((B, D)), {"h": right[0]}, weights)
    if row.state_count == 1:
        with refused("`states` of", rf"\({B}, {U + 1}\)"):
            step(np.ones((B, D)), wide, weights)
    with refused(f"{row.op}_step has no .*`states_nam`", error=TypeError):
        step(np.ones((B, D)), None, weights, states_nam="h")


LSTM = {"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)}
GRU = {"kernel": x(D, 3 * U), "recurrent_kernel": x(U, 3 * U)}
RNN = {"kernel": x(D, U), "recurrent_kernel": x(U, U)}
G = x(4 * U)


def lstm(weights=(), states=None, op="ln_lstm", **options):
    """A call of a function, with these weights beside the kernels."""
    function = getattr(ops, op)
    return function(x(B, T, D), states, LSTM | dict(weights), **options)


def step(inputs=(B, D), dtype="float32", **options):
    return ops.ln_simple_rnn_step(x(*inputs, dtype=dtype), None, RNN, **options)


def layer(name="LNLSTM", inputs=None, build=True, **options):
    """A call of a layer of the row."""
    one = BY_NAME[name].make()
    if build:
        one.build((B, T, D))
    return one(x(B, T, D) if inputs is None else inputs, **options)


RESETS = {
    "resets without flags": (
        {"reset_state": [x(B, U)] * 2},
        "`reset_state` .* without `reset`",
    ),
    "a state too few": (
        {"reset": x(B, T), "reset_state": [x(B, U)]},
        r"`reset_state` of \w+ must be 2 tensors",
    ),
    # They are the initial states too, which nobody has given.
    "a row too many": (
        {"reset": x(B, T), "reset_state": [x(B + 1, U)] * 2},
        "Argument `reset_state",
    ),
    "resets by name": (
        {"reset": x(B, T), "reset_state": {"h": x(B, U)}},
        "`reset_state` must be .* list of tensors. Received: a dict with h",
    ),
}
FIRST_STEPS = (-1, 1.0, True, "1", x(dtype="float32"), x(1, dtype="int32"))
WORDS = ("`first_step`", "a whole number >= 0 or an integer tensor of shape")
CALLS = {
    "sum and kernel": (
        lambda: lstm({"sum_gamma": G, "kernel_gamma": G}),
        *("`weights`", "may hold", "'kernel_gamma'"),
    ),
    "sum and recurrent": (
        lambda: lstm({"sum_gamma": G, "recurrent_gamma": G}),
        *("`weights`", "may hold", "'recurrent_gamma'"),
    ),
    "a state too few": (
        lambda: lstm(states=[x(B, U)]),
        "`initial_states` .*2 tensors",
    ),
    "another number of rows": (
        lambda: lstm(states=[x(2, U)] * 2),
        *("initial_states", rf"\(2, {U}\)"),
    ),
    "a state of whole numbers": (
        lambda: ops.ln_gru(x(B, T, D), x(B, U, dtype="int32"), GRU),
        r"`initial_states` must .*int32.*cast\(initial_states, ",
    ),
    "whole numbers in a list": (
        lambda: ops.ln_gru(x(B, T, D), [x(B, U, dtype="int32")], GRU),
        r"`initial_states` must .*int32.*cast\(initial_states, ",
    ),
    "no recurrent kernel": (
        lambda: ops.ln_lstm(x(B, T, D), None, {"kernel": LSTM["kernel"]}),
        "without recurrent_kernel",
    ),
    "a weight of another name": (
        lambda: lstm({"gamma": G}),
        "kernel_gamma.*Received.*'gamma'",
    ),
    "a bias of one gate": (
        lambda: lstm({"bias": x(U)}),
        rf"bias.*\({4 * U},\).*\({U},\)",
    ),
    "no moving mean": (
        lambda: lstm({"state_gamma": x(U)}, op="bn_lstm", learn=False),
        "state_moving_mean",
    ),
    "a gamma without axes": (
        lambda: lstm({"state_gamma": x()}, op="bn_lstm", learn=False),
        rf"hold state_gamma of shape \({U},\).*shape \(\)",
    ),
    "statistics of no site": (
        lambda: lstm({"other_moving_mean": x(T, U)}, op="bn_lstm", learn=True),
        "'other_moving_mean'",
    ),
    "one gain": (
        lambda: lstm({"kernel_g": G}, op="wn_lstm"),
        "without recurrent_g",
    ),
    "a gain of one gate": (
        lambda: lstm({"kernel_g": x(U), "recurrent_g": G}, op="wn_lstm"),
        rf"must hold kernel_g of shape \({4 * U},\).*shape \({U},\)\.",
    ),
    "a norm of weights": (
        lambda: lstm(
            {"kernel_g": G, "recurrent_g": G, "kernel_gamma": G}, op="wn_lstm"
        ),
        "Received: kernel_gamma",
    ),
    "no gamma to carry": (
        lambda: lstm(carry_normalized_state=True),
        "needs the weight state_gamma",
    ),
    "a mask of features": (
        lambda: lstm(input_mask=x(B, D + 1)),
        rf"`input_mask` must have .* \(batch, features\).*\({B}, {D + 1}\)",
    ),
    "a mask of units": (
        lambda: lstm(recurrent_mask=x(B, D)),
        rf"`recurrent_mask` must have .* \(batch, units\).*\({B}, {D}\)",
    ),
    **{
        f"{name}, {k}": (
            lambda name=name, value=value: lstm(**{name: value}),
            *(f"`{name}`", *words, "Received"),
        )
        for name in ("zoneout", "cell_zoneout")
        for k, (value, words) in enumerate(
            (
                (1.0, (r"number in \[0, 1\)", "=1.0")),
                (x(B, T, U), ("bool tensor", "dtype float32")),
                (x(T, B, U, dtype=bool), ("batch, time, units", r"\(4, 3, 3")),
                (x(B, U, dtype=bool), ("batch, time, units", r"\(3, 3\)")),
            )
        )
    },
    "a sequence for a step": (
        lambda: step((B, T, D)),
        "`inputs` must have rank 2",
    ),
    "whole numbers for a step": (
        lambda: step(dtype="int32"),
        "`inputs` must have a floating",
    ),
    "choices of several steps": (
        lambda: step(zoneout=x(B, 1, U, dtype=bool)),
        "`zoneout` must have rank 2",
    ),
    **{
        f"first_step={value!r}, {k}": (
            lambda call=call, value=value: call(value),
            *(*WORDS, "Received: .*first_step"),
        )
        for value in FIRST_STEPS
        for k, call in enumerate(
            (
                lambda value: layer("BNLSTM", first_step=value),
                lambda value: layer(
                    "BNLSTM", keras.Input((T, D)), first_step=value
                ),
                lambda value: lstm(op="bn_lstm", learn=True, first_step=value),
            )
        )
    },
    "max_steps of unknown lengths": (
        lambda: keras_ln.BNLSTM(U)(keras.Input((None, D))),
        *("max_steps", "unknown|None|known"),
    ),
    "max_steps of a cell": (
        lambda: keras_ln.BNLSTMCell(U).build((B, D)),
        "max_steps",
    ),
    **{
        f"{make.__name__} without steps, {batch}": (
            lambda make=make, batch=batch: make().build((batch, 0, D)),
            *("`sequences`|`inputs`", "one time step", f"0, {D}"),
        )
        for make in (lambda: keras_ln.BNLSTM(U), keras_ln.RecurrentBatchNorm)
        for batch in (B, None)
    },
    "training of batch norms in Keras' loop": (
        lambda: keras.layers.RNN(BY_NAME["BNLSTMCell"].make())(
            x(B, T, D), training=True
        ),
        *("BNLSTMCell", "BNLSTM"),
    ),
    **{
        f"{name}, {where}": (lambda c=call, o=options: c(**o), words)
        for name, (options, words) in RESETS.items()
        for where, call in (
            ("layer", lambda **o: layer(build=False, **o)),
            ("function", lstm),
        )
    },
    "resets of batch statistics": (
        lambda: layer("BNLSTM", reset=x(B, T)),
        "`reset` .* BNLSTM",
    ),
    "reset states of batch statistics": (
        lambda: layer("BNLSTM", reset_state=x(B, T)),
        "`reset_state` .* BNLSTM",
    ),
    "flags of text": (
        lambda: layer(
            inputs=keras.Input((T, D)), reset=keras.Input((T,), dtype="string")
        ),
        "`reset` must be bool, or zeros and ones",
    ),
    "too many flags": (
        lambda: layer(
            inputs=keras.Input((T, D)), reset=keras.Input((T + 1,), dtype=bool)
        ),
        "`reset` must have the shape",
    ),
    "carried without its site": (
        lambda: keras_ln.LNLSTM(U, normalize=(), carry_normalized_state=True),
        r'needs "state" in `normalize`.*\(\)',
    ),
    "carried without its site, by a cell": (
        lambda: keras_ln.LNLSTMCell(
            U, normalize=("recurrent",), carry_normalized_state=True
        ),
        r"needs .*'recurrent'",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    call, *words = CALLS[name]
    with refused(*words):
        call()


def test_states_that_are_counted_as_resets():
    """As many tensors in all as a call that was right had."""
    one, state, reset = keras_ln.LNLSTM(U), x(B, U), x(B, T)

    def call(states, resets):
        given = {"initial_state": [state] * states}
        one(x(B, T, D), reset=reset, reset_state=[state] * resets, **given)

    call(2, 2)
    for wrong in ((1, 3), (3, 1)):
        with refused("`initial_state` of LNLSTM must be 2"):
            call(*wrong)


def test_stateful_layers_keep_their_batch_size():
    one = keras_ln.LNLSTM(U, stateful=True)
    one(x(B, T, D))
    with refused("as many rows as the states"):
        one(x(1, T, D))


@pytest.mark.every_backend
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_weights_that_are_no_tensors(row):
    """Each weight by its name, and all of them, of sequences and of a step."""
    weights = {name: x(*shape) for name, shape in row.weights.items()}
    options = {"learn": False} if row.batch_statistics else {}
    calls = [lambda weights: row.function(x(B, T, D), None, weights, **options)]
    if one := getattr(ops, f"{row.op}_step", None):
        calls.append(lambda weights: one(x(B, D), None, weights))
    for run in calls:
        for name in weights:
            for value in (*NO_NUMBERS, None):
                with refused(rf"`weights\['{name}'\]` must .*Received"):
                    run(weights | {name: value})
            for value in (3, 2.5, [], [1.0, 2.0]):
                with refused(r"must hold \w+ of shape"):
                    run(weights | {name: value})
        for value in (None, "text", 3, [1.0], list(weights.values())):
            with refused("`weights` must be a dict"):
                run(value)


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_states_and_masks_that_are_no_tensors(value):
    for name in ("input_mask", "recurrent_mask"):
        with refused(f"`{name}` must .*Received"):
            lstm(**{name: value})
    if not isinstance(value, dict):  # A structure of states.
        with refused(r"`initial_states(\[1\])?` (of ln_lstm )?must "):
            lstm(states=[x(B, U), value])
