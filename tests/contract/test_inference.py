"""Keras' backends that only infer, which a process of its own chooses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.full
@pytest.mark.promise("models run in the [other tools]")
@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=pytest.mark.peers)]
)
def test_layers_infer(backend):
    python = sys.executable
    if backend == "openvino":  # tests/peers/run.py installs it.
        python = Path(os.environ["KERAS_LN_PEERS"], "tools", "bin", "python")
    program = Path(__file__).with_name("inference.py")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-n", "0", "--no-header", program],
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
