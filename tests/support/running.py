"""What runs where; commands, and environments on top of this one."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPORTS = "tests/exports/test_exports.py"
ONNX = ("tf2onnx==1.17.0", "onnx", "onnxruntime")
# What the CPU kernels take a part in.
RUN_ON_KERNELS = (
    *("kernels", "contract/test_report.py", "engine/test_padding.py"),
    *("engine/test_transformations.py", "engine/test_forward_mode.py"),
    "conformance/test_second_derivatives.py",
)


def pytest_arguments(backend, duration="not full"):
    """The arguments that choose a backend's tests: the rule of what runs where.

    torch, which compiles nothing, runs every test; TensorFlow and JAX run what
    is marked `every_backend`, of which --every-backend leaves all but
    `QUICK_EVERYWHERE` to the full run. The duration is "full", "not full" or,
    for both, empty.
    """
    where = {
        "torch": "",
        "tensorflow": "(every_backend or on_tensorflow)",
        "jax": "every_backend",
    }[backend]
    by_hand = "not slow and not accelerator and not peers"
    marks = ["-m", " and ".join(filter(None, [duration, where, by_hand]))]
    return [*marks, "--every-backend"] if where else marks


def run(*command, cwd=ROOT, **environment):
    """Run a command and fail when it fails."""
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
    )


def on_top_of_this(folder, *packages):
    """A new environment that sees this one's packages; returns its Python."""
    venv.create(folder, clear=True)
    python = Path(folder, "bin", "python")
    paths = {"base": folder, "platbase": folder}
    site_packages = Path(sysconfig.get_path("purelib", vars=paths))
    here = sysconfig.get_path("purelib")
    (site_packages / "tests.pth").write_text(
        f"import site; site.addsitedir({here!r})\n"
    )
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", *packages)
    return python
