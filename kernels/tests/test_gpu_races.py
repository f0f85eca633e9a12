"""The thread sanitizer watches the emulated kernels."""

import os
import subprocess
import sys
from pathlib import Path

import emulated
import pytest
from gpu_problems import Case

HERE = Path(__file__).parent
CLUSTER = Case(50, 2, 99, "3xtf32", True, 8, 4)
GRID = CLUSTER._replace(cluster=False, rows=16)

# Runs both cells in three orders of threads.
RUN = """
import sys
import emulated
from gpu_problems import backward, drawn_of, forward
from test_gpu_races import CLUSTER, GRID

emulation = emulated.Emulation(sys.argv[1])
for case in (CLUSTER, GRID):
    for cell in ("lstm", "gru"):
        drawn = drawn_of(cell, case)
        for seed in (0, 1, 2):
            emulation.fake.fake_seed(seed)
            made = forward(emulation, case.plan(cell), drawn)
            backward(emulation, case.plan(cell, True), drawn, made)
"""


@pytest.mark.slow
def test_no_thread_reads_what_another_writes(tmp_path):
    plans = [
        case.plan(cell, backward)
        for case in (CLUSTER, GRID)
        for cell in ("lstm", "gru")
        for backward in (False, True)
    ]
    library = emulated.build(tmp_path, plans, "-fsanitize=thread", "-g1")
    found = subprocess.run(
        ["g++", "-print-file-name=libtsan.so"],
        capture_output=True,
        text=True,
        check=True,
    )
    options = "report_signal_unsafe=0 exitcode=0 history_size=2"
    ended = subprocess.run(
        [sys.executable, "-c", RUN, library],
        capture_output=True,
        text=True,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": found.stdout.strip(),
            "TSAN_OPTIONS": options,
        },
    )
    assert ended.returncode == 0, ended.stderr[-300:]
    assert "WARNING: ThreadSanitizer: data race" not in ended.stderr
