"""The table of docs/guides/export.md that other runtimes fill."""

import os
import subprocess
from pathlib import Path

import pytest
from backend_gradients import BACKEND

pytestmark = pytest.mark.peers
HERE = Path(__file__).resolve().parent

# Formats, and the numbers of steps that they are written for.
RUNS = {
    "tensorflow": [
        *(("openvino", 3), ("openvino", None)),
        *(("tensorflowjs", 3), ("tensorflowjs", None)),
    ],
    "jax": [
        *(("onnx", 3), ("onnx", None)),
        *(("saved_model", 3), ("saved_model", None)),
    ],
    "torch": [("onnx", 1), ("onnx", 3), ("openvino", 3), ("torch", 3)],
}
STREAMS = {
    "tensorflow": ("onnx", "openvino", "litert", "saved_model", "tensorflowjs"),
    "jax": ("onnx", "saved_model"),
    "torch": ("onnx", "openvino", "torch"),
}
UNKNOWN = "inputs of unknown size"
REFUSED = {
    "tensorflow": [("tensorflowjs_for_xla", 3, "Unsupported Ops")],
    "jax": [
        ("openvino", 3, "XlaCallModule"),
        ("tensorflowjs", 3, "incompatible with expected resource"),
    ],
    "torch": [
        *(("onnx", None, UNKNOWN), ("openvino", None, UNKNOWN)),
        ("torch", None, "Guard failed"),
    ],
}


def exported(format, steps, folder):
    """How tests/exports/exported_format.py ended."""
    peers = os.environ.get("KERAS_LN_PEERS")
    if peers is None:
        pytest.fail("Start these tests with python tests/peers/run.py.")
    return subprocess.run(
        [
            Path(peers, "formats", "bin", "python"),
            *(HERE / "exported_format.py", format, str(steps), folder),
        ],
        capture_output=True,
        text=True,
        cwd=HERE.parent,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(
                map(
                    str, (HERE.parents[1], HERE.parent, HERE.parent / "support")
                )
            )
        },
    )


@pytest.mark.promise("[exported models]")
@pytest.mark.parametrize(
    "format, steps",
    [*RUNS[BACKEND], *((format, "stream") for format in STREAMS[BACKEND])],
)
def test_runs(format, steps, tmp_path):
    ended = exported(format, steps, tmp_path)
    assert ended.stdout.endswith("the same\n"), ended.stderr


@pytest.mark.parametrize("format, steps, message", REFUSED[BACKEND])
def test_is_refused(format, steps, message, tmp_path):
    """If one fails, the table promises too little."""
    ended = exported(format, steps, tmp_path)
    assert ended.returncode and message in ended.stderr, ended.stderr
