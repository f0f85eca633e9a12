"""What XLA makes of the kernels' calls for a GPU that is not here."""

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers
SCRIPT = Path(__file__).with_name("program_for_gpu.py")
KINDS = r" (while|copy-start|copy|infeed|outfeed|send|recv)\("


@pytest.mark.parametrize("name", ["LNLSTM", "LNGRU"])
def test_a_training_step_is_two_launches(name):
    """No loop remains, no array is copied, and none goes to the host."""
    python = Path(os.environ["KERAS_LN_PEERS"], "gpu", "bin", "python")
    run = subprocess.run(
        [python, SCRIPT, name], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count('custom_call_target="launch') == 2
    assert re.findall(KINDS, run.stdout) == []
