"""TensorFlow's programs for a GPU give on a CPU what JAX's programs give."""

import os
import subprocess
import sys

import pytest
from scripts import rows

from benchmarks.harness import ROOT


def call(backend, *arguments):
    return subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.tensorflow_programs"),
            *map(str, arguments),
        ],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": backend, "KERAS_LN_KERNELS": "0"},
        text=True,
        capture_output=True,
    )


@pytest.mark.full
def test_programs_for_a_gpu(tmp_path):
    """Their text is of no platform; only the launches that it saves are."""
    missing = call("jax", "run", tmp_path)
    assert missing.returncode == 1
    assert "has no programs" in missing.stderr
    # 100 of 150 gates: bools that end within a byte.
    for backend, platform in (("tensorflow", "cuda"), ("jax", "cpu")):
        sizes = ("--sizes", "3,4,7,50", "--platform", platform)
        call(backend, "write", tmp_path, *sizes).check_returncode()
    output = tmp_path / "found"
    ran = call("jax", "run", tmp_path, "--rounds", 1, "--output", output)
    assert not ran.returncode, ran.stderr
    table = rows(output.with_suffix(".csv"))
    programs = [row["program"] for row in table]
    assert programs == ["LNGRU-3,4,7,50", "LNLSTM-3,4,7,50"]
    for row in table:
        assert 0 < float(row["largest_difference"]) < 3e-6
        assert float(row["tensorflow_ms"]) > 0 < float(row["jax_ms"])
