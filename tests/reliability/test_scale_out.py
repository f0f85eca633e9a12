"""Several devices, and several processes, train as one device does."""

import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest
from arrays import close

BACKEND = keras.backend.backend()
SCRIPT = pathlib.Path(__file__).with_name("distributed_training.py")
# Sums over devices come in another order; batch norms amplify that.
CLOSE = {"rtol": 1e-8, "atol": 1e-9}

pytestmark = [pytest.mark.full, pytest.mark.every_backend]


def run(folder, place, ranks=1, devices=1):
    """(return code, errors) of each process."""
    # Both open at once, or they might be the same.
    with socket.socket() as one, socket.socket() as two:
        ports = []
        for free in (one, two):
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {
        "XLA_FLAGS": flags,
        # With fewer threads than devices JAX 0.10.2 may wait for ever, which a
        # loaded machine of two cores showed.
        "NPROC": "8",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    processes, logs = [], []
    for rank in range(ranks):
        output = folder / f"{place}{rank}.npz"
        logs.append(folder / f"{place}{rank}.log")
        arguments = map(str, (SCRIPT, output, place, rank, *ports))
        with logs[-1].open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, *arguments], env=environment, stderr=log
                )
            )
    try:
        codes = [process.wait(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [
        (code, log.read_text()) for code, log in zip(codes, logs, strict=True)
    ]


def train(folder, place, **options):
    """The weights that each process ends with."""
    ended = run(folder, place, **options)
    for code, errors in ended:
        assert code == 0, errors
    return [
        list(np.load(folder / f"{place}{rank}.npz").values())
        for rank in range(len(ended))
    ]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    (found,) = train(tmp_path_factory.mktemp("one"), "one")
    assert len(found) == {"jax": 34, "tensorflow": 21, "torch": 14}[BACKEND]
    return found


def assert_close(found, right):
    close(found, right, **CLOSE)


if BACKEND == "jax":

    @pytest.mark.promise("JAX, `keras.distribution.DataParallel`")
    def test_four_devices(tmp_path, one):
        (found,) = train(tmp_path, "devices", devices=4)
        assert_close(found, one)


if BACKEND in ("jax", "torch"):

    @pytest.mark.promise("JAX, two processes")
    @pytest.mark.promise("torch, `DistributedDataParallel`")
    def test_two_processes(tmp_path, one):
        # One device each: with several the CPU collectives of JAX 0.10 may
        # wait for each other for ever.
        place = {"jax": "processes", "torch": "parallel"}[BACKEND]
        found, other = train(tmp_path, place, ranks=2)
        assert_close(found, one)
        np.testing.assert_equal(found, other)


if BACKEND == "tensorflow":

    @pytest.mark.promise("TensorFlow, `MirroredStrategy`")
    def test_mirrored_with_synchronized_statistics(tmp_path, one):
        (found,) = train(tmp_path, "mirrored")
        assert_close(found, one)

    @pytest.mark.promise("the same, batch statistics not synchronised")
    def test_mirrored_with_the_statistics_of_each_replica(tmp_path, one):
        (found,) = train(tmp_path, "separate")
        # It works, BNLSTM too, and is another training.
        assert len(found) == 34
        assert all(np.isfinite(a).all() for a in found)
        assert abs(found[-2] - one[-2]).max() > 1e-6

    @pytest.mark.promise("TensorFlow, `MultiWorkerMirroredStrategy`")
    @pytest.mark.slow
    def test_fit_of_keras_fails_in_several_workers(tmp_path):
        # When this fails Keras has learnt it, and the documentation is old.
        for code, errors in run(tmp_path, "multi-worker", ranks=2):
            assert code != 0
            assert "PerReplica" in errors and "unsupported type" in errors
