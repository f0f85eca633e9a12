"""The table of docs/guides/export.md that other runtimes fill."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.peers
HERE = Path(__file__).resolve().parent


STREAMS = {
    "tensorflow": ("onnx", "openvino", "litert", "saved_model", "tensorflowjs"),
    "jax": ("onnx", "saved_model"),
    "torch": ("onnx", "openvino", "torch"),
}


def exported(backend, format, steps, folder):
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
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join(
                map(
                    str, (HERE.parents[1], HERE.parent, HERE.parent / "support")
                )
            ),
        },
    )


@pytest.mark.promise("[exported models]")
@pytest.mark.parametrize(
    "backend, format, steps",
    [
        ("tensorflow", "openvino", 3),
        ("tensorflow", "openvino", None),
        ("tensorflow", "tensorflowjs", 3),
        ("tensorflow", "tensorflowjs", None),
        ("jax", "onnx", 3),
        ("jax", "onnx", None),
        ("jax", "saved_model", 3),
        ("jax", "saved_model", None),
        ("torch", "onnx", 1),
        ("torch", "onnx", 3),
        ("torch", "openvino", 3),
        ("torch", "torch", 3),
        *(
            (backend, format, "stream")
            for backend, formats in STREAMS.items()
            for format in formats
        ),
    ],
)
def test_runs(backend, format, steps, tmp_path):
    ended = exported(backend, format, steps, tmp_path)
    assert ended.stdout.endswith("the same\n"), ended.stderr


UNKNOWN = "inputs of unknown size"


@pytest.mark.parametrize(
    "backend, format, steps, message",
    [
        ("tensorflow", "tensorflowjs_for_xla", 3, "Unsupported Ops"),
        ("jax", "openvino", 3, "XlaCallModule"),
        ("jax", "tensorflowjs", 3, "incompatible with expected resource"),
        ("torch", "onnx", None, UNKNOWN),
        ("torch", "openvino", None, UNKNOWN),
        ("torch", "torch", None, "Guard failed"),
    ],
)
def test_is_refused(backend, format, steps, message, tmp_path):
    """If one fails, the table promises too little."""
    ended = exported(backend, format, steps, tmp_path)
    assert ended.returncode and message in ended.stderr, ended.stderr
