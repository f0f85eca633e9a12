"""The script for the first minutes on a GPU, run without one."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("gpu_slot.py")
SOME = "meetings,lstm A tf32,gru C 3xtf32,gru B bfloat16 grid"


@pytest.mark.parametrize(
    "sections", [SOME, pytest.param(None, marks=pytest.mark.slow)]
)
def test_a_dry_run(tmp_path, sections):
    chosen = {"SECTIONS": sections} if sections else {}
    subprocess.run(
        [sys.executable, SCRIPT, "--dry"],
        env=os.environ | {"OUT": str(tmp_path)} | chosen,
        check=True,
    )
    with (tmp_path / "gpu_slot.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    failed = ("FAILED", "STOPPED", "ENDED", "no time", "does not end")
    assert not [r for r in rows if r["what"].startswith(failed)]
    assert not [r for r in rows if r["value"].startswith("WRONG")]
    errors = {
        (r["section"].split()[2], r["what"]): float(r["value"])
        for r in rows
        if r["what"].startswith("error of")
    }
    assert len(errors) >= 10
    limits = {"tf32": 5e-3, "3xtf32": 2e-6, "bfloat16": 3e-2, "float16": 5e-3}
    assert all(e < limits[format] for (format, _), e in errors.items()), errors
    assert {r["value"] for r in rows if "same bits" in r["what"]} == {"True"}


def test_a_section_that_fails(tmp_path):
    """By itself, as the sanitizer runs it."""
    ended = subprocess.run(
        [sys.executable, SCRIPT, "lstm Z tf32", "--dry"],
        env=os.environ | {"OUT": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "FAILED" in ended.stdout
    assert ended.returncode == 1
