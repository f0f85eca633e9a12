"""The machine: its devices, their sharing of batches, and facts about it."""

import contextlib
import functools
import os
import platform
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import keras_ln
from common.errors import InputError


def check(args: Namespace) -> None:
    """Refuses a --distribute that the backend or batch size does not allow."""
    if args.distribute == "none":
        return
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise InputError(
            f"--distribute {args.distribute} works on the tensorflow and jax "
            f"backends of Keras, not on {backend}"
        )
    number = count(args)
    if args.batch_size % number:
        raise InputError(
            f"--batch-size: {args.batch_size} cannot be split evenly over "
            f"{number} devices"
        )


def held_out(
    args: Namespace, examples: int, batch_size: int
) -> tuple[int, int]:
    """The number of held-out examples to evaluate, and their batch size.

    Devices that share batches need equal parts of every batch, also of the
    last one. They leave out the last examples, fewer than the devices.

    Args:
        examples: the number of held-out examples.
        batch_size: the requested batch size.

    Raises:
        InputError: if there are fewer examples than devices, or none.
    """
    if not examples:
        raise InputError("--data: expected held-out examples, received none")
    number = count(args)
    if examples < number:
        raise InputError(
            f"the {examples} held-out examples are fewer than the {number} "
            "devices of --distribute"
        )
    return examples - examples % number, max(1, batch_size // number) * number


def threads() -> int:
    """The number of threads with which the framework computes on a CPU.

    TensorFlow and XLA ignore the variable that limits torch.
    """
    if keras.backend.backend() == "torch":
        import torch

        return torch.get_num_threads()
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    if keras.backend.backend() == "jax":
        return usable
    asked = tf.config.threading.get_intra_op_parallelism_threads()
    return asked or int(os.environ.get("TF_NUM_INTRAOP_THREADS", 0)) or usable


def count(args: Namespace) -> int:
    """The devices that share a batch."""
    return 1 if args.distribute == "none" else len(names())


def names() -> list[str]:
    """The devices of this machine on which models are trained."""
    backend = keras.backend.backend()
    if backend == "jax":
        return keras.distribution.list_devices()
    if backend == "torch":
        return [str(keras.ops.zeros(1).device)]
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return [device.name for device in tf.config.list_logical_devices(kind)]


@contextlib.contextmanager
def distribution(args: Namespace) -> Iterator[None]:
    """Models that are built and trained inside use the devices of `args`."""
    if args.distribute == "none":
        yield
    elif keras.backend.backend() == "tensorflow":
        with _mirrored(*names()).scope():
            yield
    else:
        before = keras.distribution.distribution()
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(devices=names())
        )
        try:
            yield
        finally:
            keras.distribution.set_distribution(before)


@functools.cache
def _mirrored(*devices: str) -> tf.distribute.Strategy:
    """The strategy of all runs of a process.

    In TensorFlow 2.21 the sums of a second strategy over the same devices have
    the keys of the first strategy's sums, and fail if their shapes differ.
    """
    return tf.distribute.MirroredStrategy(devices)


def facts(seconds: float) -> dict[str, Any]:
    """The content of `environment.json` for a run of this duration."""
    backend = keras.backend.backend()
    return {
        "commit": _commit(),
        "keras_ln": keras_ln.__version__,
        "kernels": keras_ln.engine.kernels(),
        "backend": backend,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads(),
        "devices": names(),
        "training_minutes": round(seconds / 60, 3),
    }


def _commit() -> str:
    """The commit of the code, and whether the code was changed since."""
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
