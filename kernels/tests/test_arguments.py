"""What the library refuses, and which library it is."""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from problems import arguments, backward, call_of, draw, forward, problem, run

import keras_ln_kernels
from keras_ln_kernels import call, digest, library

SIZES = B, T, D, U = 2, 3, 4, 5
NEEDED = ("x", "kernel", "recurrent_kernel", "final_h", "final_c")
NAN, INFINITE = float("nan"), float("inf")
# Fields of an LSTM's struct, with neither vectors nor options, and the message.
WRONG = [
    ({"abi_version": 6}, "made for another version"),
    ({"struct_bytes": 6}, "made for another version"),
    ({"cell": 3}, "cell: unknown"),
    ({"dtype": 2}, "dtype: unknown"),
    *(({name: 0}, "must be positive") for name in call.Sizes._fields),
    ({"threads": 0}, "threads: must be positive"),
    *(({f"openmp_{n}": 64}, "one without") for n in library.OpenMP._fields),
    ({"epsilon": 0.0}, "epsilon: must be positive"),
    *(({"epsilon": e}, "epsilon: must be fin") for e in (-1.0, NAN, INFINITE)),
    *(
        ({n: 1.0}, "less than 1")
        for n in ("zoneout_share", "cell_zoneout_share")
    ),
    ({"zoneout": 1, "zoneout_share": 0.5}, "there are choices and a share"),
    ({"go_backwards": 2}, "go_backwards: must be 0 or 1"),
    ({"carry_normalized_state": -1}, "carry_normalized_state: must be 0 or 1"),
    ({"carry_normalized_state": 1}, "carry_n.*: there is no state_gamma"),
    *(
        ({f"{site}_beta": 1}, f"{site}_beta: there is no {site}_gamma")
        for site in ("kernel", "recurrent", "state")
    ),
    *(({f"sum_{n}": 1}, "no sum_g") for n in ("beta", "bias", "by_gate")),
    ({"sum_gamma": 1, "kernel_gamma": 1}, "sum_gamma: there is another site"),
    ({"reset_h": 1}, "reset_h, .*no starts"),
    *(({name: None}, f"^{name}: NULL") for name in NEEDED),
]


@pytest.mark.parametrize("fields, message", WRONG)
def test_a_problem_that_is_refused(fields, message):
    drawn = draw("lstm", SIZES, ())
    this = call_of(drawn, arguments(drawn), ["final_h", "final_c"])
    made = problem(this, SIZES)
    for name, value in fields.items():
        setattr(made, name, value)
    functions, place = library.library(), ctypes.byref(made)
    wrong = functions.kln_forward(place).decode()
    assert re.search(message, wrong)
    if not wrong.startswith("final"):
        assert functions.kln_backward(place).decode() == wrong
        layout = (ctypes.c_int64 * 3)()
        told = functions.kln_residual_layout(place, layout)
        assert told.decode() == wrong


def test_no_problem_is_refused():
    assert library.library().kln_forward(None) == b"problem: NULL"


@pytest.mark.parametrize("cell", call.CELLS)
def test_what_a_cell_has_not_is_refused(cell):
    """Every option and every array of the library's list."""
    drawn = draw(cell, SIZES, ())
    this = call_of(drawn, arguments(drawn), ["final_h"])
    number, refused = call.CELLS[cell].number, set()
    for slot in call._SLOTS:
        made = problem(this, SIZES)
        if not slot.cells >> number & 1:
            setattr(made, slot.name, 1)
            wrong = library.library().kln_forward(ctypes.byref(made))
            assert wrong.decode() == f"{slot.name}: this cell has none"
            refused.add(slot.name)
    assert ("initial_c" in refused) == (cell != "lstm")
    assert ("recurrent_bias" in refused) == (cell != "gru")
    assert ("recurrent_gamma" in refused) == (cell == "simple_rnn")


def test_an_option_that_there_is_not():
    with pytest.raises(ValueError, match="no option no_such. There are: eps"):
        call.options(epsilon=1e-5, no_such=1)
    assert call.options(epsilon=1, go_backwards=1)[:2] == (1.0, True)


def test_residuals_in_odd_places_are_refused():
    drawn = draw("lstm", SIZES)
    residuals = forward(drawn, training=True)["residuals"]
    odd = np.zeros(residuals.size + 3, "u1")[3:]
    odd[:] = residuals
    with pytest.raises(ValueError, match="residuals: not aligned to 16 bytes"):
        backward(drawn, odd)


def overlapping(shape, other, shift):
    """An array that starts `shift` elements after another one."""
    memory = np.zeros(4 * other.size + 4 * np.prod(shape))
    start = 2 * other.size
    memory[start : start + other.size] = other.ravel()
    start += shift
    return (
        memory[start - shift : start - shift + other.size].reshape(other.shape),
        memory[start : start + np.prod(shape)].reshape(shape),
    )


@pytest.mark.parametrize("shift", ["before", "same", "after"])
@pytest.mark.parametrize("read", ["x", "initial_h", "kernel", "bias"])
def test_results_that_overlap_arguments_are_refused(read, shift):
    drawn = draw("lstm", SIZES)
    arrays = arguments(drawn)
    shape = (B, U)
    shift = {"before": -B * U + 1, "same": 0, "after": arrays[read].size - 1}[
        shift
    ]
    arrays[read], into = overlapping(shape, arrays[read], shift)

    def make(wanted, dtype):
        return into if wanted == shape else np.zeros(wanted, dtype)

    with pytest.raises(ValueError, match="written to overlaps another one"):
        run(drawn, arrays, ["outputs", "final_h", "final_c"], make=make)
    # Side by side they may stand.
    beside = arrays[read].size if shift >= 0 else -B * U
    arrays[read], into = overlapping(shape, arrays[read], beside)
    # Both states would have the same place.
    with pytest.raises(ValueError, match="written to overlaps another one"):
        run(drawn, arrays, ["outputs", "final_h", "final_c"], make=make)
    finals = iter([into, np.zeros(shape)])
    run(drawn, arrays, ["final_h", "final_c"], make=lambda *_: next(finals))


def test_gradients_that_overlap_are_refused():
    drawn = draw("gru", SIZES)
    residuals = forward(drawn, training=True)["residuals"]

    def into(array):
        return lambda shape, _: array.reshape(shape)

    for array in (drawn.d_outputs, drawn.d_states[0], residuals):
        count = B * U
        memory = array.view("f8").ravel()[:count]
        with pytest.raises(ValueError, match="written to overlaps another"):
            backward(
                drawn, residuals, wanted=["d_initial_h"], make=into(memory)
            )


def test_the_choice_of_instruction_set(each_instruction_set):
    assert keras_ln_kernels.instruction_set() == each_instruction_set
    with pytest.raises(ValueError, match="no such instruction set.*'sse'"):
        keras_ln_kernels.use_instruction_set("sse")
    assert keras_ln_kernels.instruction_set() == each_instruction_set


def fresh(code, *arguments, **environment):
    """What a new process prints."""
    code = f"import keras_ln_kernels as k; {code}"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
        | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    ).stdout.strip()


def test_the_environment_chooses(each_instruction_set):
    code = "print(k.instruction_set())"
    chosen = fresh(code, KERAS_LN_KERNELS_ISA=each_instruction_set)
    assert chosen == each_instruction_set
    keras_ln_kernels.use_instruction_set(None)
    best = keras_ln_kernels.instruction_set()
    assert fresh(code, KERAS_LN_KERNELS_ISA="sse") == best
    assert fresh(code, KERAS_LN_KERNELS_ISA="generic") == "generic"


# The library that these tests run with.
BUILT = Path(os.environ.get("KERAS_LN_KERNELS_LIBRARY") or library._PATH)
# Prints why each of the libraries that it is given cannot be used.
REASONS = """
import sys
from pathlib import Path
import keras_ln_kernels.library as library
for path in map(Path, sys.argv[1:]):
    library.os.environ["KERAS_LN_KERNELS_LIBRARY"] = str(path)
    print(library._load.__wrapped__()[1])
"""


def reasons(*paths):
    """Why each library cannot be used, by one new process."""
    found = fresh(REASONS, *paths).splitlines()
    assert len(found) == len(paths), found
    return found


@pytest.mark.promise("the CPU extension does not load")
def test_a_library_that_cannot_be_used(tmp_path):
    whole = BUILT.read_bytes()
    size = len(whole)
    # The machine's number stands there: no machine has this one.
    other = whole[:18] + b"\xfe\xfe" + whole[20:]
    # Whole, and the loader finds nothing to load.
    nothing = whole[:40] + bytes(12) + whole[52:56] + bytes(8)
    contents = {
        "nothing": (nothing, "does not load ("),
        "missing": (None, "is missing: it is compiled when the package"),
        "empty": (b"", "is no library: it has no header of ELF."),
        "text": (b"no library" * 10, "is no library: it has no header of ELF."),
        "other": (other, "is for another machine; this one is "),
        "program": (whole[:16] + b"\2" + whole[17:], "is no shared library."),
    }
    cuts = (1, 63, 64, 200, 5_000, size // 2, size - 5_000, size - 1)
    for length in cuts:
        what = f"is cut off or damaged: it has {length} bytes."
        if length < 64:
            what = "is no library: it has no header"
        contents[f"first {length}"] = (whole[:length], what)
    expected = {}
    for name, (content, sentence) in contents.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        expected[path] = sentence
    expected[tmp_path] = "is no file."
    expected[tmp_path / "text" / "x"] = "cannot be read (Not a directory)."
    # A file that nobody can read from its start.
    expected[Path("/proc/self/mem")] = "cannot be read (Input/output error)."
    foreign = Path(np.linalg._umath_linalg.__file__)
    expected[foreign] = "is no library of keras-ln-kernels."
    for reason, (path, sentence) in zip(
        reasons(*expected), expected.items(), strict=True
    ):
        assert reason.startswith(f"{path} {sentence}")
    assert keras_ln_kernels.unsupported_reason() is None


def test_a_library_whose_highest_bytes_come_first(monkeypatch, tmp_path):
    """As on s390x."""
    elf, built = tmp_path / "elf", tmp_path / "built"
    shutil.copyfile(BUILT, built)
    # Of 64 bits, a shared library, without sections; 56 bytes for a segment.
    start = b"\x7fELF\2\2".ljust(16, b"\0") + struct.pack(">HH", 3, 22)
    elf.write_bytes(start.ljust(54, b"\0") + struct.pack(">5H", 56, 0, 0, 0, 0))
    for order in ("big", "little"):
        system = types.SimpleNamespace(byteorder=order, platform="linux")
        monkeypatch.setattr(digest, "sys", system)
        monkeypatch.setattr(digest, "_MACHINES", {})
        wrong = built if order == "big" else elf
        for path in (built, elf):
            reason = digest.damage(path, built_here=False)
            assert (reason is None) == (path != wrong), reason


@pytest.mark.promise("the CPU extension does not load")
def test_a_library_that_is_not_as_it_was_built(tmp_path):
    """Whatever has changed: the digest beside it tells."""
    whole = BUILT.read_bytes()
    digest = BUILT.with_name(f"{BUILT.name}.sha256").read_bytes()
    rng = np.random.default_rng(0)
    paths = []
    # The tables that the loader reads stand at the start.
    positions = [
        *rng.integers(30_000, size=100),
        *rng.integers(len(whole), size=50),
    ]
    for k, position in enumerate(positions):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.integers(8)
        paths.append(tmp_path / f"{k}.so")
        paths[-1].write_bytes(flipped)
        (tmp_path / f"{k}.so.sha256").write_bytes(digest)
    for path, reason in zip(paths, reasons(*paths), strict=True):
        assert reason == (
            f"{path} is not as it was built (its digest differs): install it "
            "again. If you signed, stripped or repaired it, write a new "
            f"digest: shasum -a 256 {path.name} > {path.name}.sha256"
        )
    paths[0].write_bytes(whole + b"\0")
    build = Path(__file__).parents[1] / "build_library.py"
    subprocess.run([sys.executable, build, "--digest", paths[0]], check=True)
    assert reasons(paths[0]) == ["None"]


def test_the_packages_own_library_has_a_digest(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_LN_KERNELS_LIBRARY", raising=False)
    monkeypatch.setattr(library, "_PATH", tmp_path / "packaged.so")
    shutil.copyfile(BUILT, tmp_path / "packaged.so")
    _, reason = library._load.__wrapped__()
    digest = tmp_path / "packaged.so.sha256"
    assert reason == f"{digest} is missing: install the package again."
    # PyInstaller signs it on macOS: a digest would differ.
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert library._load.__wrapped__()[1] == reason
    monkeypatch.setattr(sys, "platform", "darwin")
    assert library._load.__wrapped__()[1] is None


def test_a_library_of_another_version(monkeypatch):
    library._load.cache_clear()
    other = library.ABI_VERSION + 1
    monkeypatch.setattr(library, "ABI_VERSION", other)
    message = f"needs version {other}: install it"
    try:
        with pytest.raises(RuntimeError, match=message):
            keras_ln_kernels.instruction_set()
    finally:
        library._load.cache_clear()
