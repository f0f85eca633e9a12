"""What must hold of the sources, and of the README's example."""

import re
import subprocess
import sys
from pathlib import Path

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
    shared = {"keras_ln_kernels.h", "guard.h", "kernels.h", "cpu.h"}
    shared |= {"scratch.h"}
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
