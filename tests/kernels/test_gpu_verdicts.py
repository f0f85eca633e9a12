"""`python -m keras_ln gpu`, and what its verdicts let run, on the emulation."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import gpu_emulation
import numpy as np
import pytest
from backend_gradients import BACKEND

import keras_ln
from keras_ln import ops
from keras_ln.backend import gpu, native, verdicts
from keras_ln.gpu import command

pytestmark = [pytest.mark.kernels, pytest.mark.every_backend]
FACTS = {"gpu": "NVIDIA H200", "sources": "abc", "framework": "torch 2.11"}
ENTRY = {"cell": "lstm", "format": "3xtf32", "units": 3, "training": True}
ENTRY |= {"rows": 64, "error": 1e-6, "limit": 1e-4, "us": [4.0, 2e3]}
ENTRY |= {"other": "fused", "other_us": [[64, 29.0, 99.0], [256, 35.0, 99.0]]}
# In place of the child: facts, and what each problem is to bring.
CHILD = """
import json, os, sys, time
fault = os.environ.get("FAULT", "")
for p in json.loads(sys.argv[-1]):
    what, answer = p["what"], {"error": 1e-6, "limit": 1e-4}
    if what == "facts":
        answer = {"reason": "there is no CUDA driver."}
        facts = [json.loads(f) for f in os.environ.get("FACTS", "").split()]
        if facts:
            answer = {"facts": facts, "reasons": [], "format": "tf32"}
    elif what in fault and p["layer"] == "LNLSTM":
        if "hangs" in fault: time.sleep(600)
        if "crashes" in fault: os.abort()
        answer = {"error": 0.5, "limit": 1e-4}
        if "memory" in fault: answer = {"memory": "none"}
    elif "times" in p:
        answer = {"rows": 64, "us": [1.0, 2.0], "other": "fused"}
        answer["other_us"] = [[64, 9.0, 9.0]]
    print("noise")
    print(json.dumps({"keras_ln": answer}), flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(verdicts.VARIABLE, str(tmp_path / "verdicts"))
    monkeypatch.setattr(verdicts, "_known", {})
    return tmp_path / "verdicts"


def asked(**changes):
    """Why a kernel does not run, by the files."""
    wanted = {"cell": "lstm", "format": "3xtf32", "units": 3, "training": True}
    verdicts._known[0] = verdicts.read(changes.pop("facts", FACTS))
    return verdicts.reason(0, **wanted | changes) or ""


def test_states_and_batches(folder):
    assert "not verified on this GPU: `python -m keras_ln gpu`" in asked()
    for state, word in (
        ("running", "did not end: problem 3 began."),
        ("failed", "failed: problem 3 began."),
        ("withdrawn", "withdrawn: problem 3 began."),
    ):
        verdicts.write(FACTS, state, [ENTRY], "problem 3 began.")
        assert word in asked()
    verdicts.write(FACTS, "passed", [ENTRY], "checked here")
    # The call counts where there are few steps.
    assert not asked() and "is faster" in asked(steps=10)
    # Six waves take 24 us a step, where the scan of 384 rows takes 39; thirty
    # 120, where it takes 87.
    assert not asked(rows=384, steps=1000)
    assert "is faster" in asked(rows=1920, steps=1000)
    assert "--units 300`" in asked(units=300)
    assert "not verified" in asked(training=False)
    assert "not verified" in asked(facts=FACTS | {"sources": "abd"})
    for error in (0.5, float("nan")):
        verdicts.write(FACTS, "passed", [ENTRY | {"error": error}], "")
        assert "were wrong" in asked()


@pytest.mark.promise("a verdict that is damaged")
def test_files_that_are_passed_over(folder, monkeypatch):
    path = verdicts.write(FACTS, "passed", [ENTRY], "")
    good = path.read_text()
    for bad in (
        *("", "[]", "{", '{"schema": 1}', "[" * 10_000),
        good.replace("NVIDIA H200", "NVIDIA H20"),
        good.replace("1e-06", '"1e-6"'),
        good.replace("29.0", "null"),
        good.replace('"passed"', '["passed"]'),
    ):
        path.write_text(bad)
        assert "passed over" in asked(), bad
    path.write_text(good)
    for each in (path, path.parent):
        mode = each.stat().st_mode
        each.chmod(0o777)
        assert "others may write it" in asked()
        each.chmod(mode)
    assert not asked()
    # A folder that is read behind one that has none.
    both = os.pathsep.join([str(folder / "none"), str(folder)])
    monkeypatch.setenv(verdicts.VARIABLE, both)
    assert not asked()


def test_the_check_at_first_use(folder, monkeypatch):
    """For exactly what is asked for, once."""
    commands = []

    def run(command, **_):
        commands.append(command[1:])
        verdicts.write(FACTS, "passed", [ENTRY], "")

    monkeypatch.setenv("KERAS_LN_KERNELS", "verify")
    monkeypatch.setattr(verdicts, "facts_of", lambda device: FACTS)
    monkeypatch.setattr(verdicts.subprocess, "run", run)
    verdicts.verify.cache_clear()
    wanted = 0, "lstm", "3xtf32", 3, True
    assert gpu.verdict(*wanted, (64, 1000)) is None
    assert gpu.verdict(*wanted[:-1], False, ()) is not None
    options = "--units 3 --formats 3xtf32 --device 0 --missing"
    assert commands == [["-m", "keras_ln", "gpu", *options.split()]]


@pytest.fixture
def child(folder, monkeypatch):
    """The command with that child, and few problems."""
    some = {w: {"shape": [1, 1]} for w in ("values", "waves")}
    monkeypatch.setattr(command, "CHILD", [sys.executable, "-c", CHILD])
    monkeypatch.setattr(command, "PROBLEMS", {"all": some, "first": {}})
    monkeypatch.setattr(native, "missing", lambda: None)
    monkeypatch.setitem(command.PROBLEMS, "torch", {})
    monkeypatch.setattr(command, "UNITS", [3])
    monkeypatch.setattr(command, "START", 1)
    monkeypatch.setattr(command, "SECONDS", 2)
    facts = FACTS | {"cuda": 13000, "nvrtc": [13, 0]}
    texts = [json.dumps(f).replace(" ", "") for f in (facts, facts)]
    monkeypatch.setenv("FACTS", " ".join(texts))
    return json.loads(texts[0])


FAULTS = {
    "": (0, "passed", 8, "checked here on"),
    "values wrong": (1, "passed", 8, "WRONG: not used"),
    "values hangs": (1, "failed", 2, "values: hung"),
    "waves crashes": (1, "failed", 2, "waves: crashed -6"),
    "values memory": (2, "passed", 4, "Out of memory: none"),
}


@pytest.mark.promise("a check on the user's GPU")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, child, folder, monkeypatch, capsys):
    """Exit statuses; two equal GPUs have one file, two models two."""
    monkeypatch.setenv("FAULT", fault)
    status, state, entries, sentence = FAULTS[fault]
    assert command.main(["--formats", "tf32", "bfloat16"]) == status
    (path,) = folder.glob("*.json")
    found = json.loads(path.read_text())
    assert found["state"] == state
    assert len(found["entries"]) == entries
    assert sentence in capsys.readouterr().out + found["said"]
    if not fault:
        other = json.dumps(child | {"gpu": "H100"}).replace(" ", "")
        monkeypatch.setenv("FACTS", f"{os.environ['FACTS']} {other}")
        assert command.main([]) == 0
        assert len([*folder.glob("*.json")]) == 2


def test_what_cannot_be_done(child, folder, monkeypatch, capsys):
    """No GPU, no such one, no time, a folder that cannot be written."""
    assert command.main(["--device", "7"]) == 2
    assert command.main(["--minutes", "0"]) == 0
    assert "Left out: " in capsys.readouterr().out
    assert verdicts.read(child)[0]["entries"] == []
    assert command.main(["--units", "3", "--missing"]) == 0
    entries = verdicts.read(child)[0]["entries"]
    assert entries and command.main(["--units", "3", "--missing"]) == 0
    assert command.main(["--forget"]) == 0
    assert verdicts.read(child) == (None, "")
    (folder / "file").write_text("")
    monkeypatch.setenv(verdicts.VARIABLE, str(folder / "file"))
    assert command.main(["--minutes", "0"]) == 0
    assert "cannot be written: " in capsys.readouterr().out
    monkeypatch.setenv("FACTS", "")
    assert command.main([]) == 2
    assert "checked here: there is no CUDA" in capsys.readouterr().out


def test_two_commands_at_once(child, folder):
    """One waits for the other, whose file is whole."""
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(command.main, [["--units", "3"], []]))
    assert found == [0, 0]
    assert verdicts.read(child)[0]["state"] == "passed"
    assert not [*folder.glob("*.tmp")]


@pytest.fixture
def emulated(folder, monkeypatch):
    """The driver, children that have it, and few problems."""
    driver = gpu_emulation.use(monkeypatch)
    script = gpu_emulation.__file__
    there = [sys.executable, script, str(driver.library)]
    monkeypatch.setattr(command, "CHILD", there)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    some = {"values": {"shape": (3, 2), "mask": True}}
    monkeypatch.setattr(command, "PROBLEMS", {"all": some, "first": {}})
    command.PROBLEMS["torch"] = {}
    monkeypatch.setattr(command, "UNITS", [])
    monkeypatch.setattr(command, "LAYERS", {"LNLSTM": "lstm"})
    monkeypatch.setattr(command, "LENGTHS", ((1, 2), (1, 3)))
    monkeypatch.setattr(command, "TIMES_ROWS", (1, 2))
    return driver


def check(*options):
    sizes = ["--units", "3", "--formats", "3xtf32", "--device", "0"]
    return command.main([*sizes, *options])


def content(folder):
    (path,) = folder.glob("*.json")
    return path, json.loads(path.read_text())


@pytest.mark.full
def test_the_command(emulated, folder, monkeypatch, capsys):
    """It writes what layers then go by."""
    assert check() == 0
    path, found = content(folder)
    assert found["state"] == "passed"
    assert {e["training"] for e in found["entries"]} == {True, False}
    assert all(e["error"] < 1e-4 for e in found["entries"])
    said = capsys.readouterr().out
    assert "an H100, CUDA 13" in said and f"Written: {path}" in said
    assert check("--print") == 0
    assert "checked here on" in capsys.readouterr().out
    monkeypatch.setenv("KERAS_LN_KERNELS", "1")
    layer, x = keras_ln.LNLSTM(3), np.ones((2, 4, 2), "float32")
    # The faster implementation runs: the other one, then the kernels.
    for microseconds, launched, rows in ((1e9, 0, 2), (0.0, 1, 1)):
        for entry in found["entries"]:
            entry["us"] = [microseconds, 0.0]
        path.write_text(json.dumps(found))
        monkeypatch.setattr(verdicts, "_known", {})
        layer(x[:rows], training=True)
        launches = [line for line in emulated.log() if line[0] == "cluster"]
        assert len(launches) == launched
        assert ops.implementation(layer)[0] == "cuda"
    # An error that ends the context withdraws what was found.
    with gpu_emulation.failing(emulated, "cuLaunchKernelEx", 700):
        if BACKEND == "torch":
            with pytest.raises(RuntimeError, match="illegal memory"):
                layer(x[:1], training=True)
            assert content(folder)[1]["state"] == "withdrawn"
            layer(x[:1], training=True)
            assert "withdrawn" in ops.implementation(layer)[1]["cuda"]
    assert check("--forget") == 0 and not [*folder.glob("*.json")]
