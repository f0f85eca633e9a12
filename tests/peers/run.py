"""Compares keras_ln with other libraries: python tests/peers/run.py.

Run it with the Python of the tests. In build/peers it sets up what the
comparison needs and the tests have not: an environment of TensorFlow-Addons,
whose last release takes TensorFlow 2.15 and Python 3.11 at most; four that see
the packages of the tests too, with torchaudio, tf2onnx, the ONNX runtime
and Orbax, with what writes and runs exported models, with the tools of
docs/guides/other_tools.md, and with PyInstaller; and tensorflow.js, which takes
Node and npm. Then it runs the tests that are marked `peers`. Arguments are
pytest's.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent)]

from running import ONNX, ROOT, on_top_of_this, run  # noqa: E402 (needs sys.path)

FOLDER = ROOT / "build" / "peers"
ADDONS = ("tensorflow-cpu==2.15.1", "tensorflow-addons==0.23.0", "numpy<2")
TOOLS = ("flax", "lightning", "mlflow", "openvino", "optuna", "ray[tune]")
FORMATS = ("openvino", "jax2onnx", "onnxscript", "ai-edge-litert")
# Its converter (4.22) does not run with newer versions of the last two.
JAVASCRIPT = ("tensorflowjs==4.22.0", "ydf<0.13", "setuptools<81")


def python_for_addons():
    """A Python that TensorFlow-Addons has a release for."""
    if sys.version_info < (3, 12):
        return sys.executable
    found = shutil.which("python3.11") or shutil.which("python3.10")
    if found is None:
        raise SystemExit(
            "TensorFlow-Addons 0.23 has no release for Python "
            f"{sys.version_info.major}.{sys.version_info.minor}. Put a "
            "python3.11 or python3.10 on the PATH."
        )
    return found


def addons():
    """The environment of TensorFlow-Addons; returns its Python."""
    folder = FOLDER / "addons"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        run(python_for_addons(), "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "-q", *ADDONS)
        (folder / "complete").touch()
    return python


def tests_and(name, *packages):
    """An environment of the tests' packages and more; returns its Python."""
    folder = FOLDER / name
    if not (folder / "complete").exists():
        on_top_of_this(folder, *packages)
        (folder / "complete").touch()
    return folder / "bin" / "python"


def tensorflowjs():
    """The converter of tensorflow.js, and tensorflow.js for Node."""
    folder = FOLDER / "tensorflowjs"
    if not (folder / "complete").exists():
        run(python_for_addons(), "-m", "venv", "--clear", folder)
        pip = (folder / "bin" / "python", "-m", "pip", "install", "-q")
        run(*pip, *JAVASCRIPT)
        run("npm", "install", "--prefix", folder, "@tensorflow/tfjs@4.22.0")
        (folder / "complete").touch()


def main(arguments):
    """Set up and compare; returns the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    # As users of TensorFlow-Addons do who take their weights along.
    model = FOLDER / "old_model.h5"
    run(
        addons(),
        ROOT / "tests/compat/old_model.py",
        model,
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    run(
        addons(),
        ROOT / "docs" / "dump_tfa.py",
        model,
        FOLDER / "old_model.npz",
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    tests_and("tools", *TOOLS)
    tests_and("frozen", "pyinstaller")
    tests_and("formats", *ONNX, *FORMATS)
    tensorflowjs()
    python = tests_and("others", *ONNX, "orbax-checkpoint")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", "--no-deps", "torchaudio")
    tests = subprocess.run(
        [
            *(python, "-m", "pytest", "-q", "-m", "peers"),
            *(arguments or ["tests"]),
        ],
        cwd=ROOT,
        env=os.environ | {"KERAS_LN_PEERS": str(FOLDER)},
    )
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
