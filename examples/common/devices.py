"""The machine: its devices, their sharing of batches, and facts about it."""

import contextlib
import functools
import importlib.util
import os
import platform
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import keras

import keras_ln
from common.errors import InputError


def check(args: Namespace) -> None:
    """Refuses flags that the backend or the machine cannot follow."""
    if args.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs it: pip install tensorboard")
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax", "torch"):
        raise InputError(
            f"Keras does not train on the backend {backend}: set KERAS_BACKEND "
            "to one of tensorflow, jax, torch"
        )
    if args.distribute == "none":
        return
    if backend == "torch":
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


def even(args: Namespace, *arrays: Any) -> list[Any]:
    """Arrays without the last examples that devices cannot share equally."""
    number = count(args)
    examples = len(arrays[0]) // number * number
    if not examples:
        raise InputError(
            f"--data: expected at least {number} held-out examples, received "
            f"{len(arrays[0])}"
        )
    return [array[:examples] for array in arrays]


def warn_of_load() -> None:
    """Prints a hint if torch would share its cores with other programs."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    limited = os.environ.get("OMP_NUM_THREADS")
    if keras.backend.backend() == "torch" and not limited and load >= cores:
        print(
            f"Other programs use the {cores} cores (load {load:.1f}): "
            "OMP_NUM_THREADS=1 may be many times as fast."
        )


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
    import tensorflow as tf

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
def _mirrored(*devices: str) -> Any:
    """The strategy of all runs of a process.

    In TensorFlow 2.21 a second one over the same devices has the first one's
    keys for its sums, and fails if their shapes differ.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(devices)


def facts(seconds: float) -> dict[str, Any]:
    """The content of `environment.json` for a run of this duration."""
    backend = keras.backend.backend()
    return {
        "keras_ln": keras_ln.__version__,
        "kernels": keras_ln.engine.kernels(),
        "backend": backend,
        "python": platform.python_version(),
        "keras": keras.__version__,
        backend: sys.modules[backend].__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "devices": names(),
        "training_minutes": round(seconds / 60, 3),
    }
