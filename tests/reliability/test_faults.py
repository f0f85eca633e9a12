"""A kill, a full disk, a closed folder, a broken or foreign file.

Of a training that any of them ends, nothing is lost: it goes on to the very
result of an unbroken one. Errors are sentences.
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
from common import backup, files, training
from common.errors import InputError
from reliability import unlucky_training
from same_results import assert_same_results
from scripts import environment

KILLS = 20


def start(folder, *flags):
    """The training as a process of its own, in one life of many."""
    script = unlucky_training.__file__
    return subprocess.Popen(
        [sys.executable, script, str(folder), *map(str, flags)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )


def epochs_of(process):
    """The numbers of the epochs, as the training prints them."""
    for line in process.stdout:
        if line.startswith("reached "):
            yield int(line.removeprefix("reached "))


def assert_same_end(folder, other):
    """The weights and the losses of two trainings, bit for bit."""
    one, two = (np.load(f / "final.npz") for f in (folder, other))
    assert set(one) == set(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    assert_same_results(folder, other)


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path):
    seed = int(time.time())
    print(f"seed {seed}")  # pytest shows it where the test fails.
    rng = np.random.default_rng(seed)
    epochs = 3 * (KILLS + 1)
    flags = ("--recurrent", "--epochs", epochs)
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    with start(unbroken, *flags) as process:
        times = [time.perf_counter() for _ in epochs_of(process)]
    assert process.returncode == 0 and len(times) == epochs
    duration = float(np.median(np.diff(times)))

    repeated, seen = 0, 0
    for kill in range(KILLS):
        with start(killed, *flags) as process:
            for epoch in epochs_of(process):
                repeated += epoch <= seen
                # The files of this epoch are about to be written.
                if epoch > seen and (rng.random() < 0.5 or epoch > 3 * kill):
                    break
            seen = max(seen, epoch)
            time.sleep(rng.uniform(0.0, 1.2 * duration))
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert not (killed / "final.npz").exists()
    with start(killed, *flags) as process:
        process.communicate()
    assert process.returncode == 0
    assert_same_end(unbroken, killed)
    assert repeated, "no kill fell into an epoch"


@contextlib.contextmanager
def largest_file(size):
    """No file of this process may grow beyond `size` bytes: a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def read_only(folder):
    """Nothing can be written to the folder, not by root either."""
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        with _without_override():
            yield
    finally:
        folder.chmod(mode)


@contextlib.contextmanager
def _without_override():
    if os.geteuid() != 0 or sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    # effective, permitted, inheritable: first the lower halves, then the upper
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    effective = sets[0]
    sets[0] = effective & ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        sets[0] = effective
        libc.capset(header, sets)


MISFORTUNES = {
    "full disk": lambda folder: largest_file(3_000),
    "read-only folder": read_only,
}


def train(folder, *callback):
    unlucky_training.train(unlucky_training.parse([str(folder)]), *callback)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    train(folder)
    return folder


@pytest.mark.parametrize("misfortune", MISFORTUNES)
def test_what_cannot_be_written_loses_nothing(tmp_path, unbroken, misfortune):
    ended = tmp_path / "ended"
    with contextlib.ExitStack() as stack:
        context = MISFORTUNES[misfortune](ended)
        strikes = unlucky_training.AtTheEndOf(
            3, lambda: stack.enter_context(context)
        )
        with pytest.raises(
            InputError, match="ended/.* cannot be written .*--resume"
        ):
            train(ended, strikes)
        # All three files are those of the second epoch, and whole.
        assert backup.Backup(ended / training.BACKUP).epoch == 2
        assert len(files.read_csv(ended / "history.csv")) == 2
        keras.models.load_model(ended / "model.keras")
    files.remove_partial(ended)
    train(ended)
    assert_same_end(unbroken, ended)
