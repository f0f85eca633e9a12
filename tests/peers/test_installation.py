"""A frozen program with the CPU extension."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import running

pytestmark = pytest.mark.peers

PROGRAM = """
import keras
import keras_ln
layer = keras_ln.LNLSTM(2)
assert layer(keras.ops.ones((1, 3, 2))).shape == (1, 2)
print(keras_ln.analysis.__name__, *keras_ln.ops.implementation(layer)[:1])
"""


def test_a_frozen_program(tmp_path):
    """It has its backend, and calls the CPU extension."""
    wheel = running.kernels_wheel(sys.executable, tmp_path)
    installed = tmp_path / "installed"
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps")
    running.run(*pip, "--target", installed, wheel)
    (tmp_path / "program.py").write_text(PROGRAM)
    left_out = ("tensorflow", "torch", "matplotlib", "pandas", "sklearn")
    python = Path(os.environ["KERAS_LN_PEERS"], "frozen", "bin", "python")
    running.run(
        *(python, "-m", "PyInstaller", "--log-level=ERROR", "program.py"),
        *(f"--exclude-module={name}" for name in left_out),
        cwd=tmp_path,
        KERAS_BACKEND="jax",
        PYTHONPATH=os.pathsep.join(map(str, (running.ROOT, installed))),
    )
    done = subprocess.run(
        [tmp_path / "dist" / "program" / "program"],
        cwd=tmp_path,
        # The tests switch the extension off.
        env=os.environ | {"KERAS_BACKEND": "jax", "KERAS_LN_KERNELS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "keras_ln.analysis native\n", done.stderr
