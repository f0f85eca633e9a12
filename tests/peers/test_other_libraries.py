"""Ours against TensorFlow-Addons and haste as they are installed.

tests/peers/run.py installs them, lets them compute and starts these tests.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from peer_goldens import GOLDEN, check, read

pytestmark = pytest.mark.peers

FILES = ("tensorflow_addons.npz", "haste.npz")
CASES = sorted(case for name in FILES for case in read(GOLDEN / name))


def fresh():
    """What the libraries computed just now."""
    folder = os.environ.get("KERAS_LN_PEERS")
    if folder is None:
        pytest.fail("Start these tests with python tests/peers/run.py.")
    return {
        case: arrays
        for name in FILES
        for case, arrays in read(Path(folder, name)).items()
    }


@pytest.mark.parametrize("use_fused", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, use_fused):
    check(case, fresh()[case], use_fused)


def test_the_files_that_are_kept():
    """The suite compares with them where no library is installed."""
    found = fresh()
    kept = {c: a for name in FILES for c, a in read(GOLDEN / name).items()}
    assert set(found) == set(kept)
    for case, arrays in kept.items():
        for name, array in arrays.items():
            if array.dtype == "float64":
                np.testing.assert_allclose(
                    found[case][name],
                    array,
                    rtol=1e-9,
                    atol=1e-12,
                    err_msg=f"{case}/{name}",
                )
