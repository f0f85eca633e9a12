"""The script for a GPU, run without one."""

import csv
import os
import subprocess
import sys
from pathlib import Path

from gpu_problems import CASES


def test_a_dry_run(tmp_path):
    script = Path(__file__).with_name("gpu_slot.py")
    subprocess.run(
        [sys.executable, script, "--dry"],
        env=os.environ | {"OUT": str(tmp_path)},
        check=True,
    )
    with (tmp_path / "gpu_slot.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(CASES)
    assert {row["found"] for row in rows} == {"right"}
