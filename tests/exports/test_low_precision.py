"""What docs/guides/export.md says about low precision, in its direction."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers
HERE = Path(__file__).resolve().parent


def test_the_recurrent_normalisation_magnifies_low_precision():
    peers = os.environ.get("KERAS_LN_PEERS")
    if peers is None:
        pytest.fail("Start these tests with python tests/peers/run.py.")
    python = Path(peers, "formats", "bin", "python")
    ended = subprocess.run(
        [python, HERE / "low_precision.py", "new"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"KERAS_BACKEND": "tensorflow"},
    )
    lines = [line.split("\t") for line in ended.stdout.splitlines()]
    found = {
        name: [*map(float, numbers)]
        for weights, name, *numbers in lines
        if weights == "new"
    }
    for _, low, exact, int8 in found.values():
        assert exact < 1e-5 and exact <= low and exact < int8
    # The same holds where a CPU has no bfloat16: it rounds to float32.
    low = {name: numbers[1] / numbers[0] for name, numbers in found.items()}
    int8 = {name: numbers[3] / numbers[0] for name, numbers in found.items()}
    for moved in (low, int8):
        assert moved["LNLSTM"] > 5 * moved["LSTM"]
        assert moved["LNLSTM"] > 5 * moved['without "recurrent"']
        assert moved["LNLSTM"] < 5 * moved['without "state"']
        assert moved["LNLSTM"] > 5 * moved["epsilon=1e-1"]
