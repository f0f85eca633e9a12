"""Are barriers where they must be, and would the emulation tell?

Each is left out in turn: threads that read too early then read NaN, or what a
step before left there, or wait for ever, or race under the thread sanitizer.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import emulated
import pytest
from gpu_problems import Case

HERE = Path(__file__).parent
BARRIER = re.compile(
    r"^ +(?:group\.(?:meet|wait)|__syncthreads)\([^()]*\);", re.M
)
# The cell that shows whether a file's barriers are needed.
FILES = {"lstm_forward": "lstm", "lstm_backward": "lstm", "forward": "lstm"}
FILES |= {"gru_forward": "gru", "gru_backward": "gru"}
CLUSTER = Case(50, 2, 99, "3xtf32", True, 8, 4)
GRID = CLUSTER._replace(cluster=False, rows=16)

# Runs a cell in three orders of threads; prints how far results differ.
RUN = """
import sys
import numpy as np
import emulated
from gpu_problems import backward, drawn_of, forward
from test_gpu_races import CLUSTER, GRID

library, cell, right = sys.argv[1:]
emulation = emulated.Emulation(library)
worst, sound = 0.0, []
for case in (CLUSTER, GRID):
    drawn = drawn_of(cell, case)
    for seed in (0, 1, 2):
        emulation.fake.fake_seed(seed)
        made = forward(emulation, case.plan(cell), drawn)
        plan = case.plan(cell, True)
        found = backward(emulation, plan, drawn, made)
        sound.append(np.concatenate([made["h"].ravel(), found["d_zx"].ravel()]))
if right == "write":
    np.save(library + "." + cell + ".npy", sound)
else:
    worst = np.abs(np.load(right) - sound).max()
    print("differs" if not worst < 1e-6 else "equal")
"""


def built(folder, flags=(), without=None):
    """The kernels, but for a barrier: the file and the number of the match."""
    sources = Path(folder, "cuda")
    shutil.copytree(emulated.SOURCES, sources)
    if without is not None:
        name, place = without
        path = sources / f"{name}.h"
        text = path.read_text()
        start, end = [*BARRIER.finditer(text)][place].span()
        path.write_text(text[:start] + text[end:])
    plans = [
        case.plan(cell, backward)
        for case in (CLUSTER, GRID)
        for cell in ("lstm", "gru")
        for backward in (False, True)
    ]
    return emulated.build(folder, plans, *flags, sources=sources)


def run(library, cell, right, sanitized=False):
    """What a process says that runs a cell, and how many races it has."""
    environment = dict(os.environ, PYTHONPATH=f"{HERE}:{HERE.parent}")
    if sanitized:
        found = subprocess.run(
            ["g++", "-print-file-name=libtsan.so"],
            capture_output=True,
            text=True,
            check=True,
        )
        environment["LD_PRELOAD"] = found.stdout.strip()
        options = "report_signal_unsafe=0 exitcode=0 history_size=2"
        environment["TSAN_OPTIONS"] = options
    ended = subprocess.run(
        [sys.executable, "-c", RUN, library, cell, right],
        capture_output=True,
        text=True,
        env=environment,
    )
    races = ended.stderr.count("WARNING: ThreadSanitizer: data race")
    said = ended.stdout.strip() or ended.stderr.strip()[-300:]
    return ended.returncode, said, races


SANITIZER = ("-fsanitize=thread", "-g1")


@pytest.mark.slow
def test_every_barrier_is_needed(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    right = str(built(whole))
    sanitized = tmp_path / "sanitized"
    sanitized.mkdir()
    checked = str(built(sanitized, SANITIZER))
    for cell in ("lstm", "gru"):
        code, said, _ = run(right, cell, "write")
        assert code == 0, said
        # No race where every barrier is in its place.
        results = f"{right}.{cell}.npy"
        assert run(checked, cell, results, True) == (0, "equal", 0)
    for name, cell in FILES.items():
        text = (emulated.SOURCES / f"{name}.h").read_text()
        places = [*BARRIER.finditer(text)]
        # The kernels' own; `group.meet` is one of each.
        assert len(places) >= (3 if cell in name else 1)
        for place, match in enumerate(places):
            folder = tmp_path / f"{name}{place}"
            folder.mkdir()
            line = text.count("\n", 0, match.start()) + 1
            results = f"{right}.{cell}.npy"
            broken = built(folder, without=(name, place))
            code, said, _ = run(str(broken), cell, results)
            how = "stopped" if code else said
            if how == "equal":
                shutil.rmtree(folder)
                folder.mkdir()
                broken = built(folder, SANITIZER, (name, place))
                code, said, races = run(str(broken), cell, results, True)
                assert races, f"{name}.h:{line} can be left out"
                how = f"{races} races"
            print(f"{name}.h:{line} {match[0].strip()} left out: {how}")
