"""A run that something ends goes on to the very result of an unbroken one."""

import contextlib
import errno
import functools
import importlib
import io
import itertools
import os
import pkgutil
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest
from common import backup, ending, files, runs
from scripts import (
    ALONE,
    STUDIES,
    assert_same_run,
    environment,
    start_on_terminal,
)

BATCH = "common.callbacks.StopOnNonFinite.on_batch_end"
SAVED = "common.callbacks.Checkpoint.on_epoch_end"
GOES_ON = "; --resume continues the run in "
# What is said with each exit code, after the script's name.
SAID = {
    1: r"stopped, because the output cannot be written \(No space left .*\)",
    2: r"error: .*/killed/.* cannot be written .*--resume.*",
    128 + signal.SIGINT: "interrupted",
    141: "stopped, because nobody reads the output any more",
}


@contextlib.contextmanager
def _at(place, number, happens, folder):
    """Something happens where a function is called so many times."""
    called, calls = pkgutil.resolve_name(place), itertools.count(1)
    with contextlib.ExitStack() as stack:

        def counted(*args, **kwargs):
            if next(calls) == number:
                stack.enter_context(happens(folder))
            return called(*args, **kwargs)

        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            place, counted
        )
        yield


@contextlib.contextmanager
def _ctrl_c(folder):
    signal.raise_signal(signal.SIGINT)
    yield


@contextlib.contextmanager
def _full_disk(folder):
    """No file of this process may grow: they are larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def _read_only(folder):
    """Nothing can be put into the folder; root could, where it is real."""

    def refuse(*paths):
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        yield


@contextlib.contextmanager
def _read(lines):
    """Somebody reads so many lines of the output, and then no more."""
    reader, writer = os.pipe()

    def read():
        with os.fdopen(reader) as file:
            assert all(file.readline() for _ in range(lines))

    thread = threading.Thread(target=read)
    thread.start()
    if not lines:
        thread.join()
    with os.fdopen(writer, "w") as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        yield
    thread.join()


@contextlib.contextmanager
def _full_output(folder):
    """Standard output goes to a full disk."""
    with open("/dev/full", "w") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        yield


def at(place, number=1, happens=_ctrl_c):
    return lambda folder: _at(place, number, happens, folder)


def read(lines):
    return lambda folder: _read(lines)


def _in_this_process(context, script, flags):
    """The exit code and the last words of a script."""
    said = io.StringIO()
    # A shell's background job, as this may be one, ignores the signal.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch, context:
        patch.setattr(sys, "argv", [script.__file__])
        with contextlib.redirect_stderr(said):
            with pytest.raises(SystemExit) as stop:
                ending.execute(lambda: script.main(flags))
    signal.signal(signal.SIGINT, handler)
    return stop.value.code, said.getvalue()


def on_terminal(number, script, flags):
    """The bar of the third epoch shows an update: the epoch is under way."""
    process, read = start_on_terminal(script, *flags)
    read(until="Epoch 3/")
    read(until="loss")
    process.send_signal(number)
    read()
    _, said = process.communicate()
    return process.returncode, said


def in_a_pipe(script, flags):
    """Whose reader goes away after a line."""
    process = subprocess.Popen(
        [sys.executable, script.__file__, *flags],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    return process.wait(), said


class Kill(NamedTuple):
    """What ends which run, with which exit code, and what goes on with it."""

    script: str
    flags: str
    by: Callable | None  # in this process
    code: int = 130
    kept: int | None = 0  # epochs; None if that is chance
    again: str = "--resume"
    process: Callable | None = None


DIGITS = "permutation_invariant_mnist"
# Epochs of 10 batches.
EPOCHS = "--smoke --units 4 --epochs 4 --norm batch"
UNLUCKY, OTHER_SEED = "reliability.unlucky_training", "--resume --other-seed 2"
CTRL_C = functools.partial(on_terminal, signal.SIGINT)
QUICK = {
    "batch 5": Kill(DIGITS, EPOCHS, at(BATCH, 5)),
    "batch 25": Kill(DIGITS, EPOCHS, at(BATCH, 25), kept=2),
    # Which Keras takes for a disk that cannot be written.
    "while Keras saves": Kill(
        DIGITS,
        EPOCHS,
        at("keras.src.saving.saving_lib.is_memory_sufficient"),
        kept=1,
    ),
    "closed pipe": Kill(DIGITS, EPOCHS, read(0), 141),
    "full output": Kill(DIGITS, EPOCHS, _full_output, 1),
    "full disk": Kill(DIGITS, EPOCHS, at(SAVED, 3, _full_disk), 2, 2),
    "read-only folder": Kill(DIGITS, EPOCHS, at(SAVED, 3, _read_only), 2, 2),
}
FULL = {
    "study": Kill(
        STUDIES[0], "--smoke", at(f"{STUDIES[0]}.build_model", 3), again=""
    ),
    # Of 5 batches; another seed: what is not restored would differ.
    "random 6": Kill(UNLUCKY, "", at(BATCH, 6), 130, 1, OTHER_SEED),
    "random 19": Kill(UNLUCKY, "", at(BATCH, 19), 130, 3, OTHER_SEED),
    "random 32": Kill(UNLUCKY, "", at(BATCH, 32), 130, 6, OTHER_SEED),
    # In the second epoch of every script.
    **{
        name: Kill(name, ALONE[name], at(BATCH, batch), kept=1)
        for name, batch in {
            "attentive_reader": 9,
            "convolutional_networks": 33,
            "draw_mnist": 17,
            "everyday": 14,
            "handwriting_generation": 4,
            "sequential_mnist": 17,
            "skip_thoughts": 9,
        }.items()
    },
    "validation": Kill(
        "order_embeddings",
        "--smoke --fold 20 --norm symmetric --epochs 4 --evaluate-every 2",
        at("order_embeddings_model.Validation.on_epoch_end", 3),
        kept=2,
    ),
    "search": Kill(
        "tune",
        f"{DIGITS} --smoke --unit-choices 4 6 --max-trials 2",
        at(f"{DIGITS}_model.build_model", 2),
    ),
    "a line of a training": Kill("everyday", "--smoke", read(1), 141, None),
    "a line of a study": Kill(STUDIES[0], "--smoke", read(1), 141, again=""),
    "a line of a process": Kill(
        DIGITS, "--smoke", None, 141, None, process=in_a_pipe
    ),
    "on a terminal": Kill(
        DIGITS, "--smoke --epochs 30", None, kept=None, process=CTRL_C
    ),
}
# Batch statistics of every step and random initial states.
KILL_9 = Kill(
    "sequential_mnist",
    "--units 8 --epochs 4 --batch-size 8 --norm batch",
    None,
    -signal.SIGKILL,
    None,
    process=functools.partial(on_terminal, signal.SIGKILL),
)
KILLS = [
    *(pytest.param(kill, id=name) for name, kill in QUICK.items()),
    *(
        pytest.param(kill, id=name, marks=pytest.mark.full)
        for name, kill in FULL.items()
    ),
    pytest.param(
        KILL_9,
        id="kill -9",
        marks=[pytest.mark.full, pytest.mark.on_tensorflow],
    ),
]


@pytest.mark.promise("`kill -9` at any moment")
@pytest.mark.promise("the disk is full, or the folder read-only")
@pytest.mark.parametrize("kill", KILLS)
def test_what_was_ended_goes_on_to_the_same_end(kill, whole, tmp_path, request):
    script = importlib.import_module(kill.script)
    unbroken = whole(kill.script, kill.flags, compiled=bool(kill.process))
    if not kill.process:
        request.getfixturevalue("uncompiled")
    folder = tmp_path / "killed"
    flags = [*kill.flags.split(), "--output-dir", str(folder)]
    if kill.process:
        code, said = kill.process(script, flags)
    else:
        code, said = _in_this_process(kill.by(folder), script, flags)
    assert code == kill.code, said
    assert "Traceback" not in said and "Exception ignored" not in said
    if code in SAID:
        goes_on = f"{GOES_ON}{re.escape(str(folder))}" * (code != 2)
        words = SAID[code] + goes_on * bool(kill.again)
        name = re.escape(os.path.basename(script.__file__))
        assert re.fullmatch(f"{name}: {words}", said.splitlines()[-1]), said
    # What is kept is whole, and of the same epoch.
    path = folder / runs.BACKUP
    kept = backup.Backup(path).epoch if path.exists() else 0
    assert kill.kept in (kept, None)
    if kept:
        assert len(files.read_csv(folder / "history.csv")) == kept
        assert keras.models.load_model(folder / "model.keras").built
    for name in ("metrics.json", "final.npz"):
        assert not (folder / name).exists()
    for _ in range(2):  # What is finished stays so.
        assert script.main([*flags, *kill.again.split()]) == 0
        assert_same_run(unbroken, folder)


@pytest.mark.full
def test_the_training_with_random_numbers_is_sensitive(whole):
    """Both callbacks act, after all that ends it."""
    rows = files.read_csv(whole(UNLUCKY, "") / "history.csv")
    rates = [row["learning_rate"] for row in rows]
    assert 31 < rows[-1]["updates"] < 200 and rates[-1] < rates[0]


@pytest.mark.promise("`kill -9` at any moment")
@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path):
    seed = int(time.time())
    print(f"seed {seed}")  # pytest shows it where the test fails.
    rng = np.random.default_rng(seed)
    kills = 20
    epochs = 3 * (kills + 1)
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"

    def start(folder):
        script = pkgutil.resolve_name(UNLUCKY).__file__
        flags = ["--recurrent", "--epochs", str(epochs), "--output-dir", folder]
        return subprocess.Popen(
            [sys.executable, script, *flags],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )

    def epochs_of(process):
        for line in process.stdout:
            if line.startswith("reached "):
                yield int(line.removeprefix("reached "))

    with start(unbroken) as process:
        times = [time.perf_counter() for _ in epochs_of(process)]
    assert process.returncode == 0 and len(times) == epochs
    duration = float(np.median(np.diff(times)))

    repeated, seen = 0, 0
    for kill in range(kills):
        with start(killed) as process:
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
    with start(killed) as process:
        process.communicate()
    assert process.returncode == 0
    files.remove_partial(killed)
    assert_same_run(unbroken, killed)
    assert repeated, "no kill fell into an epoch"
