"""The wheel, built, installed and imported where JAX is the one framework.

python tests/support/built_wheel.py
"""

import importlib.metadata
import re
import shutil
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from run_all import ROOT, run

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


def main():
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
    main()
