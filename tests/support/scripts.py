"""What tests of scripts share: their plans, refusals, tables and processes."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tune
from common import cli

# They compare no kinds on a data set.
STUDIES = ("parameter_geometry", "recurrent_dynamics", "cartpole")
TRAINING = tuple(dict.fromkeys(cli.find(n).script for n in tune.EXPERIMENTS))

TASKS = Path(__file__).parents[1] / "examples" / "fixtures" / "sentence_tasks"

# Of each script a run that others are compared with.
ALONE = {
    "attentive_reader": "--norm batch-everywhere",
    "convolutional_networks": "--norm layer --batch-size 16",
    "draw_mnist": "--norm layer --batch-size 16",
    "handwriting_generation": "--norm layer --batch-size 16",
    "order_embeddings": "--norm layer --fold 20 --batch-size 16 --epochs 8",
    "sequential_mnist": "--norm layer --batch-size 16",
    "skip_thoughts": "--norm layer --evaluate-every 8",
}
ALONE = {n: f"--smoke --decay cosine {flags}" for n, flags in ALONE.items()}


def plans(experiment, *flags):
    """What a script would train with these flags."""
    return cli.plans(experiment, cli._parser(experiment).parse_args([*flags]))


def plan(experiment, *flags):
    """The first of them."""
    return plans(experiment, *flags)[0]


def refusal(capsys, main, *flags, printed=r"Data: |\d+ networks will be "):
    """The one sentence with which a script ends, of flags or of a file.

    All lines that it prints before begin with a match of `printed`.
    """
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*map(str, flags)])
    assert end.value.code == 2
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
