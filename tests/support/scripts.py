"""What tests of scripts share: their flags, refusals, tables and processes."""

import csv
import importlib
import os
import re
import subprocess
import sys
from unittest import mock

import pytest
import tune
from common import ending, flags

# They compare no kinds on a data set.
STUDIES = ("parameter_geometry", "recurrent_dynamics", "cartpole")
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
