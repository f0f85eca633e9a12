"""What runs where; commands, environments, and the wheels tried in them.

`python tests/support/running.py wheel` imports keras_ln where JAX is the one
framework; `kernels`, which needs Python alone, runs the kernels' own tests
where no framework is.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPORTS = "tests/exports/test_exports.py"
ONNX = ("tf2onnx==1.17.0", "onnx", "onnxruntime")
# What the CPU extension takes part in.
RUN_ON_KERNELS = (
    *("kernels", "contract/test_report.py", "engine/test_padding.py"),
    *("engine/test_transformations.py", "engine/test_forward_mode.py"),
    "conformance/test_second_derivatives.py",
)


def pytest_arguments(backend, duration="not full"):
    """The arguments that choose a backend's tests: the rule of what runs where.

    torch, which compiles nothing, runs every test; TensorFlow and JAX run what
    is marked `every_backend`, of which --every-backend leaves all but
    `QUICK_EVERYWHERE` to the full run. The duration is "full", "not full" or,
    for both, empty.
    """
    where = {
        "torch": "",
        "tensorflow": "(every_backend or on_tensorflow)",
        "jax": "every_backend",
    }[backend]
    by_hand = "not slow and not accelerator and not peers"
    marks = ["-m", " and ".join(filter(None, [duration, where, by_hand]))]
    return [*marks, "--every-backend"] if where else marks


def run(*command, cwd=ROOT, **environment):
    """Run a command and fail when it fails."""
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
    )


def on_top_of_this(folder, *packages):
    """A new environment that sees this one's packages; returns its Python."""
    venv.create(folder, clear=True)
    python = Path(folder, "bin", "python")
    paths = {"base": folder, "platbase": folder}
    site_packages = Path(sysconfig.get_path("purelib", vars=paths))
    here = sysconfig.get_path("purelib")
    (site_packages / "tests.pth").write_text(
        f"import site; site.addsitedir({here!r})\n"
    )
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", *packages)
    return python


PACKED = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE")
IMPORT_WHEEL = """
import importlib.metadata, importlib.util
import keras, keras_ln
assert importlib.metadata.version("keras-ln") == keras_ln.__version__
assert keras.config.backend() == "jax"
assert not importlib.util.find_spec("tensorflow")
assert not importlib.util.find_spec("torch")
assert keras_ln.LayerNormalization()(keras.ops.ones((2, 3))).shape == (2, 3)
print("keras_ln", keras_ln.__version__, "imported from", keras_ln.__file__)
"""


def kernels_wheel(python, folder):
    """The wheel of keras-ln-kernels in a folder, built if missing."""
    if not (found := [*folder.glob("*.whl")]):
        # A copy, since setuptools builds in the folder of the sources.
        source = folder / f"source-{os.getpid()}"
        shutil.copytree(ROOT / "kernels", source)
        run(python, "-m", "pip", "wheel", "-qw", folder, "--no-deps", source)
        found = [*folder.glob("*.whl")]
    return found[0]


def kernels():
    """Build the CPU extension and test it without a framework."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        venv.create(folder, with_pip=True)
        built = kernels_wheel(python, Path(os.environ.get("WHEELS", folder)))
        run(python, "-m", "pip", "install", "-q", f"{built}[test]")
        # Beside it lies its digest.
        (shared,) = (
            *Path(folder).glob("lib/*/site-packages/keras_ln_kernels/*.so"),
            *Path(folder).glob("lib/*/site-packages/keras_ln_kernels/*.dylib"),
        )
        run(
            *(python, "-m", "pytest", "-q"),
            cwd=ROOT / "kernels",
            OMP_NUM_THREADS="1",
            KERAS_LN_KERNELS_LIBRARY=str(shared),
        )


def wheel():
    """Build the wheel; install and import it where JAX is the one framework."""
    with tempfile.TemporaryDirectory() as folder:
        # A copy of the sources, since setuptools packs what an earlier build
        # left in build/.
        source = Path(folder, "source")
        others = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "keras_ln", source / "keras_ln", ignore=others)
        for name in PACKED:
            shutil.copy(ROOT / name, source)
        pip = (sys.executable, "-m", "pip")
        run(*pip, "wheel", "-q", "--no-deps", "-w", folder, source)
        (built,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(built) as archive:
            (name,) = (n for n in archive.namelist() if "METADATA" in n)
            metadata = archive.read(name).decode()
        # An index shows the README alone.
        targets = re.findall(r"\]\(([^)]*)\)", metadata)
        relative = [t for t in targets if not t.startswith("https://")]
        if len(targets) < 6 or relative:
            sys.exit(f"README.md in the wheel: relative links {relative}")

        clean = Path(folder, "clean")
        venv.create(clean)
        python = clean / "bin" / "python"
        install = (*pip, "--python", python, "install", "-q", "--no-compile")
        needed = [
            requirement.partition(";")[0]
            for requirement in importlib.metadata.requires("keras-ln")
            if re.match(r"(keras|numpy|jax)\b(?!-)", requirement)
        ]
        run(*install, *needed)
        run(*install, "--no-deps", built)
        run(python, "-I", "-c", IMPORT_WHEEL, cwd=folder, KERAS_BACKEND="jax")


if __name__ == "__main__":
    {"kernels": kernels, "wheel": wheel}[sys.argv[1]]()
