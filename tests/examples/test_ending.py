"""What scripts show, and how one goes on in a new process."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import permutation_invariant_mnist as script
import pytest
from common import ending

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


def test_a_bar_on_a_terminal(tmp_path, capsys, monkeypatch, uncompiled):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert script.main([*SMOKE, str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "Epoch 2/2" in out and "10/10" in out and "\b" in out


def test_a_program_without_open_streams(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    found = []

    def main():
        found.extend([sys.stdout.isatty(), sys.stderr.isatty()])
        print("Nobody reads this.")
        return 0

    with pytest.raises(SystemExit, match="^0$"):
        ending.execute(main)
    assert found == [False, False]


def test_a_missing_package_is_named(capsys):
    with pytest.raises(SystemExit, match="^2$"):
        ending.execute(lambda: importlib.import_module("no_such.module"))
    assert capsys.readouterr().err.endswith(
        "error: the package no_such is not installed: "
        "pip install '.[examples]'\n"
    )


# HDF5 tries to close its files once more at the exit, and crashes.
OWN_WORDS = """
import atexit, errno
from common import ending

def main():
    print("1 \xb1 2")
    atexit.register(print, "at the exit", flush=True, file=ending.sys.stderr)
    raise OSError(errno.ENOSPC, "Can't close file (file write failed, ...)")

ending.execute(main)
"""


def test_a_full_disk_in_other_words_and_letters_that_are_missing():
    found = subprocess.run(
        [sys.executable, "-c", OWN_WORDS],
        cwd=Path(script.__file__).parent,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    assert found.stdout == "1 \\xb1 2\n"
    (line,) = found.stderr.splitlines()
    assert line.endswith("cannot be written (No space left on device)")


def test_a_new_process_where_this_one_is_full(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(os, "execv", lambda *command: started.append(command))
    monkeypatch.setattr(sys, "argv", ["examples/some_script.py", "--compare"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", *sys.argv])
    ending.renew("some_script")
    monkeypatch.setattr(ending, "MANY_MEMORY_MAPS", -1)
    ending.renew("another_script")  # Whose main() this program calls.
    assert not started and not capsys.readouterr().out
    ending.renew("some_script")
    flags = ["-u", "examples/some_script.py", "--compare", "--resume"]
    assert started.pop() == (sys.executable, ["python", *flags])
    assert "in a new process" in capsys.readouterr().out
    monkeypatch.setattr(sys, "orig_argv", ["python", *flags])
    ending.renew("some_script")
    assert started.pop() == (sys.executable, ["python", *flags])
