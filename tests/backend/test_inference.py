"""Keras' backends that only infer, which a process of its own chooses."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "backend", ["numpy", pytest.param("openvino", marks=pytest.mark.peers)]
)
def test_layers_infer(backend):
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "--no-header")
    done = subprocess.run(
        [*command, f"{os.path.dirname(__file__)}/inference.py"],
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
