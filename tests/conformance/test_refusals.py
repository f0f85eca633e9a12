"""Wrong calls of layers, cells and functions, and what is said of them.

Values of constructor arguments are in test_arguments.py, arrays of the table
in test_arrays.py.
"""

import keras
import pytest
from descriptors import BY_NAME, CELLS, ROWS, SEQUENCE_LAYERS, B, D, T, U
from refusals import NO_NUMBERS, check_refused, refused, x

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


STATES = ("`initial_state`", "Received")
NO_STEPS = ("sequences", "at least one time step", r", 0, 3\)")
UNKNOWN = ("sequences", "None", "keras.Input")
# What is said, and calls of a row of which it is said.
SEQUENCES = {
    ("`unroll`", "steps is unknown", r"shape \(None, None, 2\)"): lambda row: (
        row.make(unroll=True)(keras.Input((None, D)))
    ),
    ("ndim=3|rank 3", f"ndim=2|{B}, {D}"): lambda row: row.make()(x(B, D)),
    ("ndim=3|rank 3", f"ndim=4|{B}, {T}, {D}, 1"): [
        lambda row: row.make()(keras.Input((T, D, 1))),
        lambda row: row.make().build((B, T, D, 1)),
    ],
    (str(D), str(D + 1)): [
        lambda row: built(row)(x(B, T, D + 1)),
        lambda row: built(row)(keras.Input((T, D + 1))),
    ],
    UNKNOWN: [
        lambda row: row.make()(keras.Input((T, None))),
        lambda row: row.make().build((B, T, None)),
    ],
    NO_STEPS: [
        lambda row: row.make()(x(2, 0, 3)),
        lambda row: row.make(use_fused=False)(x(2, 0, 3)),
        lambda row: row.make()(keras.Input((0, 3))),
        lambda row: row.make().build((2, 0, 3)),
    ],
    # One state more, wide ones, more rows, of rank 1, and none.
    STATES: [
        of_states(lambda right: [*right, x(B, U)]),
        of_states(lambda s: [*s[1:], x(B, U + 1)]),
        of_states(lambda s: [*s[1:], x(B + 1, U)]),
        of_states(lambda s: [*s[1:], x(B)]),
        of_states(lambda s: []),
    ],
    ("`initial_state", "must be a tensor", "Received: None"): [
        of_states(lambda s: [None] * len(s))
    ],
    ("`initial_state`", "list of tensors", "a dict with h"): [
        of_states(lambda s: {"h": s[0]})
    ],
    "batch size must be static": lambda row: row.make(stateful=True)(
        keras.Input((T, D))
    ),
    r"must hold kernel of shape \(inputs, columns.*shape \(\)\.": lambda row: (
        of_weights(row, kernel=keras.ops.ones(()))
    ),
    r"must hold recurrent_kernel of shape .*shape \(\)\.": lambda row: (
        of_weights(row, recurrent_kernel=keras.ops.ones(()))
    ),
}


def of_weights(row, cell_zoneout=0.0, **weights):
    """A call of the row's function with these among the weights."""
    named = {name: x(*shape) for name, shape in row.weights.items()}
    options = {"learn": False} if row.batch_statistics else {}
    options |= {"cell_zoneout": cell_zoneout} if cell_zoneout else {}
    return row.function(x(B, T, D), None, named | weights, **options)


@pytest.mark.parametrize("words", SEQUENCES, ids=str)
@pytest.mark.parametrize("row", SEQUENCE_LAYERS, ids=str)
def test_sequences(row, words):
    check_refused(words, SEQUENCES[words], row)


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


LSTM = {"kernel": x(D, 4 * U), "recurrent_kernel": x(U, 4 * U)}
GRU = {"kernel": x(D, 3 * U), "recurrent_kernel": x(U, 3 * U)}
RNN = {"kernel": x(D, U), "recurrent_kernel": x(U, U)}
G = x(4 * U)
GAINS = {"kernel_g": G, "recurrent_g": G}


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


ZONES = [
    (1.0, (r"number in \[0, 1\)", "=1.0")),
    (x(B, T, U), ("bool tensor", "dtype float32")),
    (x(T, B, U, dtype=bool), ("batch, time, units", r"\(4, 3, 3")),
    (x(B, U, dtype=bool), ("batch, time, units", r"\(3, 3\)")),
]
RESET = {"reset": x(B, T)}
WHOLE = x(B, U, dtype="int32")
BY_LOOP = keras.layers.RNN(BY_NAME["BNLSTMCell"].make())
# What is said, and calls of which it is said.
CALLS = {
    **{
        f"`weights` may hold.*'{site}_gamma'": [
            lambda site=site: lstm({"sum_gamma": G, f"{site}_gamma": G})
        ]
        for site in ("kernel", "recurrent")
    },
    "`initial_states` .*2 tensors": lambda: lstm(states=[x(B, U)]),
    rf"initial_states.*\(2, {U}\)": lambda: lstm(states=[x(2, U)] * 2),
    r"`initial_states` must .*int32.*cast\(initial_states, ": [
        lambda: ops.ln_gru(x(B, T, D), WHOLE, GRU),
        lambda: ops.ln_gru(x(B, T, D), [WHOLE], GRU),
    ],
    "without recurrent_kernel": lambda: ops.ln_lstm(
        x(B, T, D), None, {"kernel": LSTM["kernel"]}
    ),
    "kernel_gamma.*Received.*'gamma'": lambda: lstm({"gamma": G}),
    rf"bias.*\({4 * U},\).*\({U},\)": lambda: lstm({"bias": x(U)}),
    "state_moving_mean": lambda: lstm(
        {"state_gamma": x(U)}, op="bn_lstm", learn=False
    ),
    rf"hold state_gamma of shape \({U},\).*shape \(\)": lambda: lstm(
        {"state_gamma": x()}, op="bn_lstm", learn=False
    ),
    "'other_moving_mean'": lambda: lstm(
        {"other_moving_mean": x(T, U)}, op="bn_lstm", learn=True
    ),
    "without recurrent_g": lambda: lstm({"kernel_g": G}, op="wn_lstm"),
    rf"hold kernel_g of shape \({4 * U},\).*shape \({U},\)\.": lambda: lstm(
        {"kernel_g": x(U), "recurrent_g": G}, op="wn_lstm"
    ),
    "Received: kernel_gamma": lambda: lstm(
        GAINS | {"kernel_gamma": G}, op="wn_lstm"
    ),
    "needs the weight state_gamma": lambda: lstm(carry_normalized_state=True),
    rf"`input_mask` must .* \(batch, features\).*\({B}, {D + 1}\)": lambda: (
        lstm(input_mask=x(B, D + 1))
    ),
    rf"`recurrent_mask` must .* \(batch, units\).*\({B}, {D}\)": lambda: lstm(
        recurrent_mask=x(B, D)
    ),
    **{
        (f"`{name}`", *words, "Received"): [
            lambda name=name, value=value: lstm(**{name: value})
        ]
        for name in ("zoneout", "cell_zoneout")
        for value, words in ZONES
    },
    "`inputs` must have rank 2": lambda: step((B, T, D)),
    "`inputs` must have a floating": lambda: step(dtype="int32"),
    "`zoneout` must have rank 2": lambda: step(zoneout=x(B, 1, U, dtype=bool)),
    (
        *("`first_step`", "a whole number >= 0 or an integer tensor of shape"),
        "Received: .*first_step",
    ): [
        lambda call=call, value=value: call(value)
        for value in (
            *(-1, 1.0, True, "1", x(dtype="float32"), x(1, dtype="int32")),
        )
        for call in (
            lambda value: layer("BNLSTM", first_step=value),
            lambda value: layer(
                "BNLSTM", keras.Input((T, D)), first_step=value
            ),
            lambda value: lstm(op="bn_lstm", learn=True, first_step=value),
        )
    ],
    ("max_steps", "unknown|None|known"): lambda: keras_ln.BNLSTM(U)(
        keras.Input((None, D))
    ),
    "max_steps": lambda: keras_ln.BNLSTMCell(U).build((B, D)),
    ("`sequences`|`inputs`", "one time step", f"0, {D}"): [
        lambda make=make, batch=batch: make().build((batch, 0, D))
        for make in (lambda: keras_ln.BNLSTM(U), keras_ln.RecurrentBatchNorm)
        for batch in (B, None)
    ],
    ("BNLSTMCell", "BNLSTM"): lambda: BY_LOOP(x(B, T, D), training=True),
    **{
        words: [
            lambda call=call, options=options: call(**options)
            for call in (lambda **o: layer(build=False, **o), lstm)
        ]
        for words, options in (
            (
                "`reset_state` .* without `reset`",
                {"reset_state": [x(B, U)] * 2},
            ),
            (
                r"`reset_state` of \w+ must be 2 tensors",
                RESET | {"reset_state": [x(B, U)]},
            ),
            # They are the initial states too, which nobody has given.
            (
                "Argument `reset_state",
                RESET | {"reset_state": [x(B + 1, U)] * 2},
            ),
            (
                "`reset_state` must be .* list of tensors. .*: a dict with h",
                RESET | {"reset_state": {"h": x(B, U)}},
            ),
        )
    },
    **{
        f"`{name}` .* BNLSTM": [
            lambda name=name: layer("BNLSTM", **{name: x(B, T)})
        ]
        for name in ("reset", "reset_state")
    },
    "`reset` must be bool, or zeros and ones": lambda: layer(
        inputs=keras.Input((T, D)), reset=keras.Input((T,), dtype="string")
    ),
    "`reset` must have the shape": lambda: layer(
        inputs=keras.Input((T, D)), reset=keras.Input((T + 1,), dtype=bool)
    ),
    "needs .*Received: normalize=.'recurrent',": lambda: keras_ln.LNLSTMCell(
        U, normalize=("recurrent",), carry_normalized_state=True
    ),
}


@pytest.mark.parametrize("words", CALLS, ids=str)
def test_calls(words):
    check_refused(words, CALLS[words])


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
