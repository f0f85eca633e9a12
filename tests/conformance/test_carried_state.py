"""LNLSTM(carry_normalized_state=True): the next step gets the normalised c."""

import keras
import pytest
from descriptors import BY_NAME, B, T, U
from pairwise import parameters
from recurrence import MASKS, Problem

import keras_ln
from keras_ln import ops

LNLSTM = BY_NAME["LNLSTM"]
CARRY = {"carry_normalized_state": True}
CASES = [
    {},
    {"mask": "right", "normalize": ("state",)},
    {"mask": "middle", "go_backwards": True, "center": False},
    {"mask": "row", "zero_output_for_mask": True, "use_bias": False},
]


def problem(use_fused, mask="none", **arguments):
    return Problem(
        LNLSTM,
        {
            "use_fused": use_fused,
            "return_sequences": True,
            "return_state": True,
            **CARRY,
            **arguments,
        },
        mask=MASKS[mask],
        given_states=True,
    )


@pytest.mark.parametrize("use_fused", [False, True])
@pytest.mark.parametrize("case", parameters(CASES))
def test_against_the_oracle(case, use_fused):
    """Outputs, both states and every gradient."""
    problem(use_fused, **case).check(oracle=CARRY)


@pytest.mark.parametrize("cls", [keras_ln.LNLSTM, keras_ln.LNLSTMCell])
def test_needs_the_site(cls):
    with pytest.raises(ValueError, match=r'needs "state" in `normalize`.*\(\)'):
        cls(U, normalize=(), **CARRY)
    with pytest.raises(ValueError, match="needs .*'kernel', 'recurrent'"):
        cls(U, normalize=("recurrent", "kernel"), **CARRY)
    with pytest.raises(ValueError, match="must be True or False.*'auto'"):
        cls(U, carry_normalized_state="auto")


def test_the_op_needs_the_weight():
    ones = keras.ops.ones
    weights = {"kernel": ones((2, 12)), "recurrent_kernel": ones((3, 12))}
    with pytest.raises(ValueError, match="needs the weight state_gamma"):
        ops.ln_lstm(ones((B, T, 2)), None, weights, **CARRY)
