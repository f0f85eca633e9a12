"""How scripts start: help and refusals at once, without a framework."""

import importlib
import re
from pathlib import Path

import pytest
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
    """test_ending.py tries them with three scripts."""
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
