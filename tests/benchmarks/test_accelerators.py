"""Benchmarks of accelerators, and the parts of a run on a GPU."""

import importlib.util
import sys
import time

import pytest
from scripts import rows

from benchmarks import on_a_gpu, sequence_layers, tpu_kernels
from benchmarks.on_a_gpu import Part

# A loop of two kernels and a counter, one of them in a function of its own;
# one kernel and the loop itself outside.
PROGRAM = """
HloModule jit_f, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%called (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %inner = f32[4]{0} fusion(%p), kind=kLoop, calls=%add
}

%body.1 (t: (s32[], f32[4])) -> (s32[], f32[4]) {
  %t = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[4]{0} get-tuple-element(%t), index=1
  %one = s32[] constant(1)
  %next = s32[]{:T(128)} add(%i, %one)
  %copy-start.1 = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(%x)
  %copy-done.1 = f32[4]{0} copy-done(%copy-start.1)
  %pair = (f32[4]{0:T(128)S(1)}, /*index=1*/f32[4]{0}) fusion(%x), calls=%add
  %y = f32[4]{0} get-tuple-element(%pair), index=0
  %space = f32[4]{0:S(1)} custom-call(), custom_call_target="AllocateBuffer"
  %z = f32[4]{0} call(%y), to_apply=%called
  ROOT %out = (s32[], f32[4]{0}) tuple(%next, %z)
}

%condition (t: (s32[], f32[4])) -> pred[] {
  %t = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %zero = s32[] constant(0)
  %first = f32[4]{0} fusion(%x), kind=kLoop, calls=%add
  %init = (s32[], f32[4]{0}) tuple(%zero, %first)
  %loop = (s32[], f32[4]{0}) while(%init), condition=%condition, body=%body.1
  ROOT %last = f32[4]{0} get-tuple-element(%loop), index=1
}
"""


def test_count():
    found = tpu_kernels.count(PROGRAM)
    assert len(found.outside) == len(found.on_chip) == 1
    assert [k.split()[0] for k in found.per_step] == ["pair", "inner"]


if importlib.util.find_spec("jax"):
    import jax

    def test_phases_of_a_scan_compile_and_count(monkeypatch, tmp_path):
        monkeypatch.setattr(tpu_kernels, "target", lambda: jax.devices()[0])
        monkeypatch.setattr(tpu_kernels, "ENVIRONMENT", {})
        path = tmp_path / "kernels.csv"
        scan = ["--sizes", "2,3,4,5", "--ops", "LN scan with autodiff"]
        tpu_kernels.main([*scan, "--output", str(path)])
        found = rows(path)
        assert [
            r["phase"] for r in found
        ] == "forward backward inference".split()
        assert all(float(r["kernels_per_step"]) > 3 for r in found)


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
    monkeypatch.setenv("KERAS_LN_GPU_SOFTWARE", "")
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


def test_what_is_run_and_timed(tmp_path):
    """The scripts take their options, and the tests are there."""
    tried = set()
    for part in on_a_gpu.parts(tmp_path):
        if part.name.startswith(("layers", "without")):
            options = sequence_layers.parse(part.command[3:])
            tried.add((part.backend, options.layer, options.dtype))
        assert not part.command[-1].endswith(".py") or (
            (on_a_gpu.harness.ROOT / part.command[-1]).exists()
        )
    assert len(tried) == 10
    with pytest.raises(SystemExit, match="must match any of: check torch, "):
        on_a_gpu.main([str(tmp_path), "--only", "test_jax"])
