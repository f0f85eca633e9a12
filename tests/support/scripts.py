"""What tests of scripts share: flags, refusals, results and processes."""

import atexit
import csv
import functools
import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest
import tune
from common import ending, flags

# They compare no kinds on a data set.
STUDIES = ("recurrent_dynamics", "cartpole")
TRAINING = tune.EXPERIMENTS

# Of each script a run that others are compared with.
ALONE = {
    "attentive_reader": "--norm batch-everywhere",
    "convolutional_networks": "--norm layer --batch-size 16",
    "draw_mnist": "--norm layer --batch-size 16",
    "everyday": "--norm lnlstm --batch-size 16 --examples 240",
    "handwriting_generation": "--norm layer --batch-size 16",
    "order_embeddings": "--norm layer --fold 20 --batch-size 16 --epochs 8",
    "sequential_mnist": "--norm layer --batch-size 16",
    "skip_thoughts": "--norm layer --evaluate-every 8",
}
ALONE = {name: f"--smoke {flags}" for name, flags in ALONE.items()}


class Parsed(Exception):
    """Ends a script after its flags."""


def parsed(name, *words):
    """The flags with which a script would train."""
    whole, found = flags.parse, []

    def parse(*given, **own):
        found.append(whole(*given, **own))
        raise Parsed

    with mock.patch.object(flags, "parse", parse):
        with pytest.raises(Parsed):
            importlib.import_module(name).main([*map(str, words)])
    return found[0]


def plans(name, *words):
    """The flags of every run of a script."""
    return flags.plans(parsed(name, *words))


def refusal(capsys, main, *words, printed=r"Data: |\d+ networks will be "):
    """The one sentence with which a script ends, of flags or of a file.

    All lines that it prints before begin with a match of `printed`.
    """
    capsys.readouterr()
    assert ending.run(main, [*map(str, words)]) == 2
    captured = capsys.readouterr()
    assert all(re.match(printed, said) for said in captured.out.splitlines())
    (line,) = captured.err.splitlines()
    return line


def rows(path):
    """A table as texts, by column."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def environment(**more):
    """Of a process that finds what this one finds."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | more


def run_python(*arguments, **more):
    """A finished process of Python; `more` is of its environment."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=600,
    )


def start_on_terminal(script, *flags):
    """Starts `script`, a module, as its user would.

    Returns:
        The process and a function that reads what it shows, up to a text, or
        to the end without one.
    """
    terminal, inside = pty.openpty()
    # Where the tests run in the background Ctrl-C is ignored, in children too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, script.__file__, *map(str, flags)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=inside,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    os.close(inside)

    def read(until=None):
        seen = ""
        while until is None or until not in seen:
            try:
                seen += os.read(terminal, 1).decode("latin-1")
            except OSError:  # What Linux says at the end.
                assert until is None, f"ended early: {seen}"
                break
        return seen

    return process, read


# Devices have to be there before a framework starts, hence a process. It takes
# one script after another, since its start takes longer than most of them.
_CODE = """
import contextlib, importlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # What is printed is no answer.
two = "--xla_force_host_platform_device_count=2"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {two}"
import tensorflow as tf
from common import ending
cpu = tf.config.list_physical_devices("CPU")[0]
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
for line in sys.stdin:
    name, *flags = json.loads(line)
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = ending.run(importlib.import_module(name).main, flags)
        except Exception:
            code = 1
            traceback.print_exc()
    print(json.dumps([code, errors.getvalue()]), file=answers, flush=True)
"""


@functools.cache
def _process():
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # Workers of pytest-xdist do not wait: it ends when its input is closed.
    atexit.register(process.communicate)
    return process


def run_on_two_devices(script, *flags):
    """How `script`, a module, ends that shares its batches.

    Returns:
        A `subprocess.CompletedProcess` with its exit code and standard error.
    """
    flags = [*map(str, flags), "--distribute", "data-parallel"]
    process = _process()
    print(json.dumps([script.__name__, *flags]), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"the process ended: {process.wait()}"
    code, errors = json.loads(answer)
    return subprocess.CompletedProcess(flags, code, None, errors)


# Times and machines, which no run repeats, and what only KerasTuner reads.
_OWN = ("environment.json", "backup.npz", "search")


def _weights(path):
    model = keras.models.load_model(path, compile=False)
    return [keras.ops.convert_to_numpy(v) for v in model.weights]


def _arrays(path):
    with np.load(path) as file:
        return [file[name] for name in sorted(file)]


_CONTENTS = {
    ".keras": _weights,
    ".npz": _arrays,
    "history.csv": lambda path: [row | {"seconds": 0} for row in rows(path)],
}


def _files(folder):
    found = (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    return {path for path in found if not {*path.parts}.intersection(_OWN)}


def assert_same_run(one, two):
    """The same files in two folders, and in them the same numbers."""
    assert _files(one) == _files(two)
    for path in _files(one):
        kind = path.suffix if path.suffix in _CONTENTS else path.name
        content = _CONTENTS.get(kind, Path.read_bytes)
        np.testing.assert_equal(
            content(one / path), content(two / path), str(path)
        )
