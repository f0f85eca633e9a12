"""The script that runs all that needs a GPU, without one."""

import importlib.util
import sys
import time

import pytest
from scripts import rows

from benchmarks import on_a_gpu, sequence_layers
from benchmarks.on_a_gpu import Part

# Its child takes no notice of Ctrl-C.
SLEEPER = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begun", flush=True)
try:
    child.wait()
except KeyboardInterrupt:
    print(child.pid)
"""


def parts_of(monkeypatch, tmp_path, parts, *options):
    """How these parts ended."""
    monkeypatch.setattr(on_a_gpu, "parts", lambda folder: parts)
    monkeypatch.setattr(on_a_gpu, "library", lambda folder: "")
    # The script gives its parts what it sets for itself.
    monkeypatch.setenv("KERAS_LN_KERNELS_LIBRARY", "")
    with pytest.raises(SystemExit) as end:
        on_a_gpu.main([str(tmp_path), "--smoke", *options])
    found = rows(tmp_path / "parts.csv")
    wrong = [
        r for r in found if not r["end"].startswith(("exit status 0", "l"))
    ]
    assert end.value.code == bool(wrong)
    return found


def python(name, code, *needs):
    return Part(name, [sys.executable, "-c", code], 60, needs, ())


def is_alive(pid):
    """Zombies are not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_how_parts_end(monkeypatch, tmp_path, capsys):
    parts = [
        python("good", "print('a'); print('the last')"),
        python("bad", "raise SystemExit('no such size')"),
        python("of another", "", "no_such_package"),
        Part("tool", ["no-such-program"], 60, (), ()),
    ]
    found = parts_of(monkeypatch, tmp_path, parts)
    assert [(row["end"], row["said"]) for row in found] == [
        ("exit status 0", "the last"),
        ("exit status 1", "no such size"),
        ("left out: there is no no_such_package", ""),
        ("left out: there is no no-such-program", ""),
    ]
    assert (tmp_path / "good" / "output.txt").read_text() == "a\nthe last\n"
    assert "exit status 1  no such size\n" in capsys.readouterr().out


def test_a_part_that_hangs_ends_with_its_children(monkeypatch, tmp_path):
    parts = [python("hangs", SLEEPER), python("late", "")]
    monkeypatch.setattr(on_a_gpu, "LEAST", 2)
    hanging, late = parts_of(
        monkeypatch, tmp_path, parts, "--minutes", str(4 / 60)
    )
    assert hanging["end"] == "stopped after 4 s"
    assert hanging["said"].isdigit()  # After Ctrl-C.
    end = time.monotonic() + 10
    while is_alive(hanging["said"]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_alive(hanging["said"])
    assert late["end"] == "left out: no time"


def test_the_library_that_is_named_or_there(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_LN_KERNELS_LIBRARY", raising=False)
    monkeypatch.setattr(on_a_gpu, "KERNELS", tmp_path / "no checkout")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    kept = tmp_path / "libkeras_ln_kernels.so"
    kept.touch()
    assert on_a_gpu.library(tmp_path) == str(kept)
    monkeypatch.setenv("KERAS_LN_KERNELS_LIBRARY", "mine.so")
    assert on_a_gpu.library(tmp_path) == "mine.so"


def test_a_part_of_another_name(tmp_path):
    with pytest.raises(SystemExit, match="must match any of: kernels first, "):
        on_a_gpu.main([str(tmp_path), "--only", "test_jax"])


def test_the_tests_are_found(monkeypatch, tmp_path):
    (part,) = [p for p in on_a_gpu.parts(tmp_path) if p.name == "tests torch"]
    # The kernels may not be installed here.
    command = [word for word in part.command if word != "--kernels"]
    monkeypatch.setattr(on_a_gpu, "KERNELS", tmp_path)
    (row,) = parts_of(monkeypatch, tmp_path, [part._replace(command=command)])
    assert row["end"] == "exit status 0"
    assert "tests collected" in row["said"]


def test_what_is_timed(tmp_path):
    """The options are those of the script that takes them."""
    tried = set()
    for part in on_a_gpu.parts(tmp_path):
        if part.name.startswith("layers"):
            options = sequence_layers.parse(part.command[3:])
            tried.add((part.backend, options.layer, options.dtype))
    assert len(tried) == 10
