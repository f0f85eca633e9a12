"""Several devices, and several processes, train as one device does."""

import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
SCRIPT = pathlib.Path(__file__).with_name("distributed_training.py")
# Sums over devices come in another order; batch norms amplify that.
CLOSE = {"rtol": 1e-8, "atol": 1e-9}

pytestmark = pytest.mark.slow


def start(folder, place, rank=0, port=0, devices=1):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [
            sys.executable,
            SCRIPT,
            folder / f"{place}{rank}.npz",
            place,
            str(rank),
            str(port),
        ],
        env=os.environ
        | {"XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )


def weights(folder, place, rank=0):
    return list(np.load(folder / f"{place}{rank}.npz").values())


def train(folder, place, **options):
    process = start(folder, place, **options)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return weights(folder, place)


def train_in_two_processes(folder, place, **options):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes = [
        start(folder, place, rank=rank, port=port, **options)
        for rank in range(2)
    ]
    return [
        (process.communicate(timeout=600)[1], process.returncode)
        for process in processes
    ]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    found = train(tmp_path_factory.mktemp("one"), "one")
    assert len(found) == (34 if BACKEND == "jax" else 21)
    return found


def assert_close(found, right):
    for a, b in zip(found, right, strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)


if BACKEND == "jax":

    def test_four_devices(tmp_path, one):
        assert_close(train(tmp_path, "devices", devices=4), one)

    def test_two_processes_of_two_devices(tmp_path, one):
        for errors, code in train_in_two_processes(
            tmp_path, "processes", devices=2
        ):
            assert code == 0, errors
        for rank in range(2):
            assert_close(weights(tmp_path, "processes", rank), one)


if BACKEND == "tensorflow":

    def test_mirrored_with_synchronized_statistics(tmp_path, one):
        assert_close(train(tmp_path, "mirrored"), one)

    def test_mirrored_with_the_statistics_of_each_replica(tmp_path, one):
        found = train(tmp_path, "separate")
        # It works, BNLSTM too, and is another training.
        assert len(found) == 34
        assert all(np.isfinite(a).all() for a in found)
        assert abs(found[-2] - one[-2]).max() > 1e-6

    def test_fit_of_keras_fails_in_several_workers(tmp_path):
        # When this fails Keras has learnt it, and the documentation is old.
        for errors, code in train_in_two_processes(tmp_path, "multi-worker"):
            assert code != 0
            assert "PerReplica" in errors and "unsupported type" in errors
