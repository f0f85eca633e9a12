"""Loaded weights give what the other library gave, by its own record."""

import pytest
from peer_goldens import GOLDEN, check, part, read

FILES = ("tensorflow_addons", "haste", "haste_gru")
CASES = {}
for name in FILES:
    CASES |= read(GOLDEN / f"{name}.npz")


@pytest.mark.promise("weights of TensorFlow-Addons 0.23 and haste 0.5.5")
@pytest.mark.parametrize("use_fused", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, use_fused):
    check(case, CASES[case], use_fused)


@pytest.mark.parametrize("case", ["lstm", "simple_rnn", "haste", "haste_gru"])
def test_every_array_matters(case):
    """A weight that does not reach the output could be loaded wrongly."""
    for name in part(CASES[case], "weight"):
        arrays = dict(CASES[case])
        # Reversed, as a constant shift or scale may be normalised away.
        arrays[f"weight{name}"] = arrays[f"weight{name}"][..., ::-1]
        with pytest.raises(AssertionError, match="output 0"):
            check(case, arrays, use_fused=False)
