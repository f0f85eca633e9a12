"""What pip finds for a build of the CPU extension, and a frozen program."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import running
from packaging.requirements import Requirement

pytestmark = pytest.mark.peers

BUILD = runpy.run_path(str(running.ROOT / "kernels" / "build_library.py"))
# The oldest systems on which wheels are expected, as pip names them.
TAGS = {
    "linux-x86_64": ("manylinux2014_x86_64", "manylinux_2_27_x86_64"),
    "linux-aarch64": ("manylinux2014_aarch64", "manylinux_2_27_aarch64"),
    "macos-arm64": ("macosx_12_0_arm64",),
    "macos-x86_64": ("macosx_12_0_x86_64",),
    "musl-x86_64": ("musllinux_1_2_x86_64", "musllinux_1_1_x86_64"),
    "musl-aarch64": ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64"),
}


CASES = [(s, p) for s in BUILD["JAXLIB_ON"] for p in BUILD["JAXLIB"]]
CASES += [(system, 12) for system in TAGS if system not in BUILD["JAXLIB_ON"]]


@pytest.mark.parametrize("system, python", CASES)
def test_pip_finds_what_the_build_needs(system, python):
    """A wheel of everything that the build asks for there."""
    needed = BUILD["requirements"](system, python, libc="2.27")
    assert needed
    for one in map(Requirement, needed):
        command = [sys.executable, "-m", "pip", "index", "versions", one.name]
        command += ["--python-version", f"3.{python}", "--only-binary=:all:"]
        command += [f"--platform={tag}" for tag in TAGS[system]]
        done = subprocess.run(command, capture_output=True, text=True)
        _, _, found = done.stdout.partition("Available versions: ")
        versions = found.partition("\n")[0].split(", ")
        assert any(v and one.specifier.contains(v) for v in versions), done


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
