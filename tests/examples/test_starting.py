"""How scripts start and end, and those that use nothing of examples/common."""

import importlib
import os
import re
from pathlib import Path

import keras
import permutation_invariant_mnist as script
import pytest
import quick_start
import streaming
from common import devices, ending
from scripts import STUDIES, TRAINING, run_python

SCRIPTS = (*TRAINING, *STUDIES, "search", "tune")

# Everything that takes long to import.
_START = """
import runpy, sys
path, *cases = sys.argv[1:]
for case in cases:
    sys.argv = [path, *case.split()]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        print("exit code", end.code)
heavy = {"keras", "keras_ln", "tensorflow", "jax", "torch", "numpy", "scipy"}
heavy |= {"sklearn", "matplotlib", "tensorflow_datasets", "keras_tuner"}
print("imported", sorted(heavy & {*sys.modules}))
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_the_endings(name):
    """The tests of endings try them with three scripts."""
    source = Path(importlib.import_module(name).__file__).read_text()
    main = 'if __name__ == "__main__":\n    ending.execute(main)\n'
    assert source.endswith(main)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_and_wrong_flags_import_no_framework(tmp_path, name):
    (tmp_path / "a_file").touch()
    own = "everyday " if name == "tune" else ""
    wrong = [
        "--nonsense",
        f"--output-dir {tmp_path}/a_file",
        f"--output-dir {tmp_path}/a_file/deeper",
        f"--output-dir {tmp_path}/{300 * 'long'}",
    ]
    if name not in (*STUDIES, "search", "tune"):
        wrong += ["--data nowhere", "--norm nonsense", "--seed 1 1"]
        wrong += ["--preset nonsense", "--learning-rate 0"]
    wrong += {
        "attentive_reader": ["--norm batch --batch-size 1"],
        "draw_mnist": ["--read-size 1"],
        "everyday": ["--task", "--task sums", "--task verses --norm bnlstm"],
        "search": ["--process 3/2", "--task sums", "--points 65"],
        "tune": ["--norm-kinds group", "--learning-rates 2 1"],
    }.get(name, [])
    path = importlib.import_module(name).__file__
    cases = [own + flags for flags in ("--help", *wrong)]
    end = run_python("-c", _START, path, *cases)
    *_, imported = end.stdout.splitlines()
    assert imported == "imported []"
    codes = re.findall("^exit code (.*)$", end.stdout, re.M)
    assert codes == ["0", *("2" for _ in wrong)]
    sentences = end.stderr.splitlines()
    assert len(sentences) == len(wrong)
    for sentence in sentences:
        assert re.match(rf"({name}|everyday)\.py: error: ", sentence)


SMOKE = ["--smoke", "--units", "4", "--epochs", "2", "--output-dir"]


def test_lines_where_there_is_no_terminal(tmp_path, capsys, uncompiled):
    assert script.main([*SMOKE, str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    for number in (1, 2):
        assert lines[2 * number - 2] == f"Epoch {number}/2"
        assert " - loss: " in lines[2 * number - 1]
    assert re.fullmatch(r"\| norm .*\| test NLL .*", lines[4])
    assert not re.search(r"[\x00-\x07\x0b-\x1f]", captured.out + captured.err)


def test_a_missing_package_is_named(capsys):
    with pytest.raises(SystemExit, match="^2$"):
        ending.execute(lambda: importlib.import_module("no_such.module"))
    assert capsys.readouterr().err.endswith(
        "error: the package no_such is not installed: "
        "pip install '.[examples]'\n"
    )


@pytest.mark.parametrize("load, limit", [(0, ""), (99, "1"), (99, "")])
def test_a_busy_machine(load, limit, monkeypatch, capsys):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    devices.warn_of_load()
    hint = "OMP_NUM_THREADS=1 may be" in capsys.readouterr().out
    busy = load and not limit and keras.backend.backend() == "torch"
    assert hint == bool(busy)


def test_trains_both_models_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert quick_start.main(["--epochs", "2"]) == 0
    said = capsys.readouterr().out
    for name in ("LSTM", "LNLSTM"):
        row = rf"^{name}: test error \S+ %, epochs to 5 %: (\d+|more)$"
        assert re.search(row, said, re.MULTILINE)
    assert (tmp_path / "quick_start.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("script", "flags", "message"),
    [
        (quick_start, "--epochs 0", "expected at least 1, received 0"),
        (quick_start, "--figure none/x.png", "FOLDER/NAME.png, received none/"),
        (quick_start, "--figure x.xyz", "FOLDER/NAME.png, received x.xyz"),
        (streaming, "--frames 0", "expected at least 1, received 0"),
        (streaming, f"--folder {__file__}/x", "Not a directory"),
    ],
)
def test_what_they_refuse(capsys, script, flags, message):
    with pytest.raises(SystemExit, match="2"):
        script.main(flags.split())
    error = capsys.readouterr().err
    assert flags.split()[0] in error and message in error


@pytest.mark.full
@pytest.mark.every_backend
@pytest.mark.filterwarnings("ignore:.*LiteRT interpreter:UserWarning")
def test_denoises_frame_by_frame(tmp_path, capsys):
    arguments = ["--epochs", "1", "--frames", "50", "--folder", str(tmp_path)]
    assert streaming.main(arguments) == 0
    said = capsys.readouterr().out
    noisy, denoised = map(float, re.findall(r"noise (\S+) dB", said))
    assert denoised > noisy + 3
    assert re.search(r"A frame of 10 ms takes \S+ ms .mean., \S+ ms", said)
    assert (tmp_path / "streaming.png").stat().st_size > 10_000
