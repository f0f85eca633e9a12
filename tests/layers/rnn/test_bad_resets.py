"""Flags and states of `reset` that are refused, by their messages."""

import keras
import numpy as np
import pytest

import keras_ln

B, T, D, U = 3, 4, 5, 4
ZEROS = np.zeros((B, U))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_state": [ZEROS] * 2}, "`reset_state` .* without `reset`"),
        (
            {"reset": np.zeros((B, T)), "reset_state": [ZEROS]},
            r"`reset_state` (of LNLSTM )?must be 2 tensor\(s\)",
        ),
        (
            {"reset": np.zeros((B, T)), "reset_state": {"h": ZEROS}},
            "`reset_state` must be .* list of tensors. Received: a dict with h",
        ),
        ({"reset": True}, "`reset` must have the shape"),
        ({"reset": 3}, r"`reset` must have the shape.*shape \(\)"),
        (
            {"reset": np.zeros((B, T)), "reset_state": [0.0, 0.0]},
            r"`reset_state(\[0\])?` (of LNLSTM )?must",
        ),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        keras_ln.LNLSTM(U)(np.zeros((B, T, D)), **options)
    weights = {
        "kernel": np.ones((D, 4 * U)),
        "recurrent_kernel": np.ones((U, 4 * U)),
    }
    with pytest.raises(ValueError, match=message):
        keras_ln.ops.ln_lstm(np.zeros((B, T, D)), None, weights, **options)


def test_states_that_are_counted_as_resets():
    """As many tensors in all as a call that was right had."""
    layer = keras_ln.LNLSTM(U, dtype="float64")
    x, state = (keras.ops.ones(shape) for shape in ((B, T, D), (B, U)))
    given = {"reset": np.zeros((B, T), bool)}

    def call(states, resets):
        layer(x, **given, initial_state=states, reset_state=resets)

    call([state] * 2, [state] * 2)
    with pytest.raises(ValueError, match="`initial_state` of LNLSTM must be 2"):
        call([state], [state] * 3)
    with pytest.raises(ValueError, match="`initial_state` of LNLSTM must be 2"):
        call([state] * 3, [state])


@pytest.mark.parametrize("name", ["reset", "reset_state"])
def test_batch_statistics_refuse(name):
    with pytest.raises(ValueError, match=f"`{name}` .* BNLSTM"):
        keras_ln.BNLSTM(U)(np.zeros((B, T, D)), **{name: np.zeros((B, T))})


@pytest.mark.parametrize(
    ("reset", "message"),
    [
        (keras.Input((T,), dtype="string"), "must be bool, or zeros and ones"),
        (keras.Input((T + 1,), dtype="bool"), "must have the shape"),
    ],
)
def test_bad_symbolic_input(reset, message):
    with pytest.raises(ValueError, match=f"`reset` {message}"):
        keras_ln.LNLSTM(U)(keras.Input((T, D)), reset=reset)
