"""Wrong inputs and states of a cell by itself, and of a step."""

import keras
import pytest
from arrays import close
from descriptors import BY_NAME, CELLS, B, D, T, U
from refusals import refused, x


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_input_of_a_cell(row):
    with refused("rank 2", f"{B}, {T}, {D}"):
        row.make().build((B, T, D))
    with refused("inputs", "None"):
        row.make().build((B, None))


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
def test_states_that_do_not_fit(row):
    cell = row.make()
    right = cell.get_initial_state(B)
    for states, words in wrong_states(row, right):
        with refused(*words):
            cell(x(B, D), states)
    assert cell(x(B, D), right)[0].shape == (B, U)


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_a_state_of_one_row_serves_all(row):
    cell = row.make()
    found, expected = (
        keras.ops.convert_to_numpy(cell(x(B, D), cell.get_initial_state(n))[0])
        for n in (1, B)
    )
    close(found, expected, rtol=1e-6)


@pytest.mark.parametrize("row", CELLS, ids=str)
def test_inputs_of_another_size(row):
    cell = row.make()
    states = cell.get_initial_state(B)
    cell(x(B, D), states)
    with refused("`inputs`", "batch, features", rf"\({B}, {D + 1}\)"):
        cell(x(B, D + 1), states)


def test_batch_normalised_cell_cannot_train_in_keras_rnn():
    loop = keras.layers.RNN(BY_NAME["BNLSTMCell"].make())
    assert loop(x(B, T, D), training=False).shape == (B, U)
    with refused("BNLSTMCell", "BNLSTM", error=ValueError):
        loop(x(B, T, D), training=True)
    # Nothing to keep.
    plain = keras.layers.RNN(BY_NAME["BNLSTMCell"].make(normalize=()))
    assert plain(x(B, T, D), training=True).shape == (B, U)
