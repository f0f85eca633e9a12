"""What must hold of the sources, and of the README's example."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import build_library

KERNELS = Path(__file__).parents[1]
HEADERS = sorted((KERNELS / "src").glob("*.h"))


def test_headers_include_nothing_of_the_cpp_library():
    """Its inline functions are visible to the linker.

    It keeps one copy of each, which may be the one that was compiled for an
    instruction set that the machine lacks.
    """
    allowed = {"stddef.h", "stdint.h", "sanitizer/asan_interface.h"}
    assert HEADERS
    for path in HEADERS:
        found = set(re.findall(r"#include <(.+)>", path.read_text()))
        assert found <= allowed, path


def test_what_instruction_sets_compile_is_not_visible_to_the_linker():
    """Everything in these headers stands in an unnamed namespace."""
    # Declarations alone.
    shared = {"keras_ln_kernels.h", "slots.h", "guard.h", "cpu.h"}
    shared |= {"scratch.h", "partition.h", "team.h", "gpu.h"}
    for path in HEADERS:
        if path.name not in shared:
            text = re.sub(r"//.*|#(.*\\\n)*.*", "", path.read_text())
            before, _, _ = text.partition("namespace {")
            # Or a declaration of what is compiled once.
            declaration = r"(void \w+\([^{]*?\);\s*)?"
            start = r"\s*namespace kln {\s*" + declaration
            assert re.fullmatch(start, before), path
            assert re.search(r"}\s*}\s*$", text), path


def test_the_example_of_the_readme():
    text = (KERNELS / "README.md").read_text()
    example = r"```python\n(.*?)```\n\n```\n(.*?)```"
    code, expected = re.search(example, text, re.S).groups()
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=KERNELS,
    )
    assert run.stdout == expected


def test_requirements_of_the_build(monkeypatch):
    """Where there are wheels."""
    zig = ["ziglang>=0.16,<0.18"]
    for case, expected in {
        ("linux-x86_64", 10): [*zig, "jaxlib==0.6.2"],
        ("linux-aarch64", 14): [*zig, "jaxlib==0.7.1"],
        ("macos-arm64", 15): [*zig, "jaxlib==0.11.1"],
        ("macos-arm64", 16): zig,
        ("macos-x86_64", 12): zig,
        ("musl-x86_64", 12): zig,
        ("linux-s390x", 12): [],
        ("win32-x86_64", 12): [],
    }.items():
        monkeypatch.delenv("KERAS_LN_KERNELS_COMPILER", raising=False)
        assert build_library.requirements(*case, libc="2.27") == expected
        # Zig has no part in the work of a compiler that is asked for.
        monkeypatch.setenv("KERAS_LN_KERNELS_COMPILER", "g++")
        found = build_library.requirements(*case, libc="2.27")
        assert found == [name for name in expected if name not in zig]
    assert build_library.requirements("linux-x86_64", 14, libc="2.17") == []


def test_platforms_without_zig(monkeypatch):
    """The system's compiler makes them there, and no others."""
    monkeypatch.delenv("KERAS_LN_KERNELS_COMPILER", raising=False)
    monkeypatch.setattr(build_library.sys, "platform", "linux")
    monkeypatch.setattr(build_library.platform, "machine", lambda: "s390x")
    monkeypatch.setattr(build_library.platform, "libc_ver", lambda: ("glibc",))
    assert build_library.own_compiler() == "c++"
    assert build_library.target_of().wheel == "linux_s390x"
    assert build_library.own_compiler("linux-x86_64") is None
    with pytest.raises(SystemExit, match="no library for linux-riscv64. There"):
        build_library.target_of("linux-riscv64")


# Stands for compilers: an empty file for each that is asked for.
COMPILER = f"""#!{sys.executable}
import sys
open(sys.argv[sys.argv.index("-o") + 1], "w").close()
"""


def test_wheels(tmp_path):
    """Each holds one library, where compiled packages are, with its tag.

    With it are its digest and the licence.
    """
    tree = tmp_path / "kernels"
    built = ("*.so", "*.dylib", "*.sha256")
    left_out = shutil.ignore_patterns("tests", "build", *built)
    shutil.copytree(KERNELS, tree, ignore=left_out)
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__main__.py").write_text(COMPILER)
    own = tmp_path / "compiler"
    own.write_text(COMPILER)
    own.chmod(0o755)
    package = tree / "keras_ln_kernels"
    gone = package / "gone.py"
    gone.touch()
    # As `python build_library.py --target` leaves it.
    (package / "libkeras_ln_kernels.dylib").touch()
    (package / "libkeras_ln_kernels.dylib.sha256").touch()
    for target, compiler, platform, suffix in (
        ("macos-arm64", "", "macosx_11_0_arm64", "dylib"),
        ("linux-x86_64", "", "manylinux_2_17_x86_64", "so"),
        ("linux-aarch64", str(own), "linux_aarch64", "so"),
        # Of other machines the system's compiler alone knows.
        ("linux-riscv64", str(own), "linux_riscv64", "so"),
    ):
        environment = {
            "PYTHONPATH": str(tmp_path),
            "KERAS_LN_KERNELS_TARGET": target,
            "KERAS_LN_KERNELS_COMPILER": compiler,
        }
        folder = tmp_path / target
        subprocess.run(
            [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", folder],
            cwd=tree,
            env=os.environ | environment,
            check=True,
        )
        (wheel,) = folder.iterdir()
        assert wheel.name.endswith(f"-py3-none-{platform}.whl")
        with zipfile.ZipFile(wheel) as file:
            names = file.namelist()
            (about,) = (name for name in names if name.endswith("/WHEEL"))
            assert b"Root-Is-Purelib: false" in file.read(about)
            (licence,) = (name for name in names if name.endswith("/LICENSE"))
            assert file.read(licence) == (KERNELS / "LICENSE").read_bytes()
            expected = f"keras_ln_kernels/libkeras_ln_kernels.{suffix}"
            digest = hashlib.sha256(file.read(expected)).hexdigest()
            written = file.read(f"{expected}.sha256").decode()
            assert written == f"{digest}  {Path(expected).name}\n"
        libraries = [name for name in names if "/libkeras_ln_kernels" in name]
        assert libraries == [expected, f"{expected}.sha256"]
        sources = {Path(name).name for name in names if "/cuda/" in name}
        assert sources == {p.name for p in (KERNELS / "src/cuda").iterdir()}
        # It was there in the build of the first alone.
        there = "keras_ln_kernels/gone.py" in names
        assert there == (target == "macos-arm64")
        gone.unlink(missing_ok=True)
