"""`python -m keras_ln`, and keras-ln-kernels that cannot be used."""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from descriptors import SEQUENCE_LAYERS

import keras_ln
from keras_ln.__main__ import report

BACKEND = keras.backend.backend()

# What `keras_ln_kernels` may be. Each is asked for its version, and whether it
# runs here, and no more.
PACKAGES = {
    "another version": (
        '__version__ = "0.0.7"',
        "",
        r"it has version 0\.0\.7, keras_ln needs \d\.\d\.\*\.",
    ),
    "no library": (
        f'__version__ = "{keras_ln.backend.native._SERIES}.0"',
        'def unsupported_reason():\n    return "the library is missing."',
        r"the library is missing\.",
    ),
}


def run(path, *command, **environment):
    """What a process prints, and the warnings of ours in it.

    On JAX, which is imported fastest, unless `environment` has another.
    """
    environment = os.environ | {"KERAS_BACKEND": "jax"} | environment
    environment["PYTHONPATH"] = os.pathsep.join([str(path), *sys.path])
    environment.pop("KERAS_LN_KERNELS", None)
    found = subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return found.stdout, re.findall("UserWarning: keras-ln.*", found.stderr)


def named(lines):
    rows = (line.strip() for line in lines if " " in line)
    return dict(re.split("  +", row, maxsplit=1) for row in rows)


def test_report():
    lines = list(report())
    assert lines[0].split() == ["keras_ln", keras_ln.__version__]
    facts = named(lines)
    assert facts["backend"].startswith(f"{BACKEND} ")
    assert facts["BNLSTM"].startswith("fused")
    assert {row.name for row in SEQUENCE_LAYERS} <= facts.keys()
    if os.environ.get("KERAS_LN_KERNELS") == "0":
        assert facts["CPU extension"] == "none. KERAS_LN_KERNELS=0 is set."
        assert facts["LNLSTM"] == "fused"


@pytest.mark.kernels
def test_report_with_kernels():
    facts = named(report())
    assert re.fullmatch(
        r"keras-ln-kernels [\d.]+, (avx512|avx2|neon|generic)",
        facts["CPU extension"],
    )
    assert facts["LNLSTM"] == "native"


@pytest.mark.full
@pytest.mark.parametrize("name", PACKAGES)
def test_kernels_that_do_not_fit(name, tmp_path):
    """A sentence, one warning, and what runs without them."""
    version, module, sentence = PACKAGES[name]
    package = tmp_path / "keras_ln_kernels"
    package.mkdir()
    (package / "version.py").write_text(version)
    (package / "__init__.py").write_text(module)
    text, warnings = run(tmp_path, "-m", "keras_ln")
    assert re.search(f"CPU extension +none.*cannot be used: {sentence}", text)
    assert re.search("LNLSTM +fused$", text, re.MULTILINE)
    assert len(warnings) == 1


@pytest.mark.promise("the CPU extension does not load")
@pytest.mark.kernels
@pytest.mark.parametrize("foreign", [False, True])
def test_a_library_that_does_not_serve(foreign, tmp_path):
    from keras_ln_kernels.library import _PATH

    library = tmp_path / "library.so"
    # The loader would end the process.
    library.write_bytes(_PATH.read_bytes()[:100_000])
    sentence = "is cut off or damaged: it has 100000 bytes"
    if foreign:
        library = np.linalg._umath_linalg.__file__
        sentence = "is no library of keras-ln-kernels"
    code = (
        "import numpy as np, keras_ln\n"
        "print(keras_ln.LNLSTM(3)(np.ones((2, 4, 3), 'float32')).shape)\n"
        "print(keras_ln.ops.implementation(keras_ln.LNLSTM(3))[0])"
    )
    text, warnings = run(
        *(tmp_path, "-c", code),
        KERAS_BACKEND=BACKEND,
        KERAS_LN_KERNELS_LIBRARY=str(library),
    )
    assert text.split()[-1] == "fused"
    assert len(warnings) == 1 and sentence in warnings[0]


WITHOUT_KERNELS = """
import importlib.util, platform, runpy
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: (
    None if name == "keras_ln_kernels" else find_spec(name, *package)
)
platform.system = lambda system=platform.system(): {system}
runpy.run_module("keras_ln", run_name="__main__")
"""


@pytest.mark.full
def test_without_kernels(tmp_path):
    """Nothing is said unless somebody asks, who hears how to install them."""
    code = WITHOUT_KERNELS.format(system="system")
    text, warnings = run(tmp_path, "-c", code)
    assert re.search(
        r"none\. keras-ln-kernels is not installed\.\n"
        r" +to install it: pip install \./kernels in a checkout; .*\n"
        r"GPU kernels +none\. .*\n"
        r"layers\n",
        text,
    )
    assert not warnings
