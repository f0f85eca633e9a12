"""Everything that must be green, in one command: python tests/run_all.py.

The checks run one after another, the TensorFlow suite last, so that pytest's
count closes the output; the exit status is 1 when any of them failed. Names
of checks as arguments run those alone: python tests/run_all.py style jax
"""

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# What does not depend on the backend runs once, with TensorFlow.
BACKEND_FREE = [
    "tests/benchmarks",
    "tests/examples",
    "tests/reliability/test_bad_files.py",
    "tests/reliability/test_faults.py",
    "tests/test_architecture.py",
    "tests/test_packaging.py",
    "tests/test_public_names.py",
    "tests/test_reference.py",
]
# XLA takes a second or two for most cases on JAX. These are about what stands
# above the backend; `KERAS_BACKEND=jax pytest` runs them on JAX too.
NOT_ON_JAX = [
    "tests/analysis",
    "tests/compat",
    "tests/layers/normalization/test_statistics.py",
    "tests/layers/rnn/test_bad_input.py",
    "tests/layers/rnn/test_dropout.py",
    "tests/layers/rnn/test_keras_usage.py",
    "tests/layers/rnn/test_swapped_for_keras.py",
    "tests/ops/test_arguments.py",
    "tests/ops/test_sequence_arguments.py",
    "tests/reliability",
    "tests/test_exports.py",
    "tests/test_tuning.py",
]

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


def run(*command, cwd=ROOT, **environment):
    """Run a command and fail when it fails."""
    subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | environment,
        check=True,
    )


def style():
    """Ruff's rules and ruff's format."""
    run(sys.executable, "-m", "ruff", "check", ".")
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


def types():
    """Mypy on the package."""
    run(sys.executable, "-m", "mypy")


def wheel():
    """Build the wheel; install and import it where JAX is the one framework."""
    with tempfile.TemporaryDirectory() as folder:
        # A copy of the sources, since setuptools packs what an earlier build
        # left in build/.
        source = Path(folder, "source")
        shutil.copytree(ROOT / "keras_ln", source / "keras_ln")
        for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        pip = (sys.executable, "-m", "pip")
        run(*pip, "wheel", "-q", "--no-deps", "-w", folder, source)
        (built,) = Path(folder).glob("*.whl")

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


def suite(backend, *arguments):
    """Tests on one backend, one process per core."""
    pytest = (sys.executable, "-m", "pytest", "-q", "--dist", "worksteal")
    workers = str(min(os.cpu_count() or 1, 8))
    chosen = ("-m", "not slow and not accelerator and not peers")
    run(*pytest, "-n", workers, *chosen, *arguments, KERAS_BACKEND=backend)


def portable_suite(backend, left_out=()):
    """The tests that a backend other than TensorFlow has to pass."""
    ignored = (f"--ignore={path}" for path in (*BACKEND_FREE, *left_out))
    suite(backend, "tests", *ignored)


CHECKS = {
    "style": style,
    "types": types,
    "wheel": wheel,
    "jax": lambda: portable_suite("jax", NOT_ON_JAX),
    "torch": lambda: portable_suite("torch"),
    "tensorflow": lambda: suite("tensorflow"),
}


def main(argv=None):
    """Run the checks and report; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help=f"any of {', '.join(CHECKS)}; all of them by default",
    )
    chosen = parser.parse_args(argv).checks or list(CHECKS)
    if unknown := set(chosen) - set(CHECKS):
        parser.error(
            f"expected any of {', '.join(CHECKS)}. Received: "
            f"{', '.join(sorted(unknown))}."
        )
    failed = []
    start = time.monotonic()
    for name in chosen:
        # The time stands in the header, as pytest's count is the last line.
        print(f"==> {name} (at {time.monotonic() - start:.0f} s)", flush=True)
        try:
            CHECKS[name]()
        except subprocess.CalledProcessError as error:
            print(f"==> {name} failed: {error}", flush=True)
            failed.append(name)
    if failed:
        print(f"==> Failed: {', '.join(failed)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
