"""Where and with what a run was trained."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras

import keras_ln
from common import devices


def facts(seconds: float) -> dict[str, Any]:
    """What `environment.json` says of a run that took so long."""
    backend = keras.backend.backend()
    return {
        "commit": _commit(),
        "keras_ln": keras_ln.__version__,
        "kernels": keras_ln.ops.recurrence.kernels(),
        "backend": backend,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": devices.threads(),
        "devices": devices.names(),
        "training_minutes": round(seconds / 60, 3),
    }


def _commit() -> str:
    """The commit of the code, and whether anything of it was changed."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, changed = (
            subprocess.run(
                [*git, *command], capture_output=True, text=True, check=True
            ).stdout.strip()
            for command in (
                ("rev-parse", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + " and changes" * bool(changed)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    named = (line for line in lines if line.startswith("model name"))
    line = next(named, platform.processor())
    return line.partition(":")[2].strip() or line
