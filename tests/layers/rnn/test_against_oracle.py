"""Every sequence layer against its oracle: outputs, states, all gradients."""

import pytest
from descriptors import BY_NAME, SEQUENCE_LAYERS
from pairwise import pairwise, parameters
from recurrence import MASKS, Problem, arguments_of

from keras_ln import backend

COMMON = {
    "mask": tuple(MASKS),
    "use_fused": (False, "auto"),
    "go_backwards": (False, True),
    "zero_output_for_mask": (False, True),
    "return_sequences": (True, False),
    "given_states": (True, False),
    "return_state": (True, False),
    # Where the other gradients are taken after the loop.
    "on_cpu": (True, False),
}
LSTM_SITES = (
    ("kernel", "recurrent", "state"),
    ("kernel",),
    ("recurrent",),
    ("state",),
    (),
)
OWN = {
    "LNSimpleRNN": {"use_bias": (False, True)},
    "LNGRU": {
        "use_bias": (False, True),
        "center": (True, False),
        "normalize": (("kernel", "recurrent"), ("kernel",), ("recurrent",), ()),
    },
    "LNLSTM": {
        "use_bias": (True, False),
        "center": (True, False),
        "normalize": LSTM_SITES,
    },
    "BNLSTM": {
        "training": (True, False),
        "use_bias": (True, False),
        "normalize": LSTM_SITES,
    },
    "WNLSTM": {"use_bias": (True, False)},
}
CASES = [
    # Compiling takes most of the time: every fourth case does.
    {"name": name, **case, "compiled": k % 4 == 0}
    for name, own in OWN.items()
    for k, case in enumerate(pairwise({**COMMON, **own}))
]


def test_every_layer_is_compared():
    assert set(OWN) == {row.name for row in SEQUENCE_LAYERS}


@pytest.mark.parametrize("case", parameters(CASES))
def test_values_and_gradients(case, monkeypatch):
    monkeypatch.setattr(backend, "on_cpu", lambda: case["on_cpu"])
    row = BY_NAME[case["name"]]
    problem = Problem(
        row,
        arguments_of(row, case),
        mask=MASKS[case["mask"]],
        given_states=case["given_states"],
        training=case.get("training", False),
    )
    problem.check(compiled=case["compiled"])
