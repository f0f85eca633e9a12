"""The checks of the repository, and old and new versions.

    nox -s style types                checks, in this environment
    nox -s torch -- full              the long tests on torch; all: both
    nox -t versions                   each in an environment made with uv
    nox -s torch-oldest               one of them; -k oldest: all of this name
    nox -s jax-nightly                Keras of last night, which may fail

`python tests/run_all.py` runs the checks side by side. The oldest versions are
the lower bounds of setup.cfg. A missing interpreter is skipped; pyenv's are
found if named, as in `PYENV_VERSION=3.10.13:3.12.1:3.13.0`. What passes has a
row in tests/measured/matrix.csv. `UV_TORCH_BACKEND=cpu` leaves out CUDA.
"""

import configparser
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
SUPPORT = ROOT / "tests" / "support"
sys.path.append(str(SUPPORT))

import running  # noqa: E402 (needs sys.path)

nox.options.sessions = ["style", "types", "wheel", "jax", "torch", "tensorflow"]
PYTEST = (sys.executable, "-m", "pytest", "-q")
BACKENDS = ("jax", "torch", "tensorflow")
check = nox.session(venv_backend="none")


@check
def style(session):
    """Ruff's rules and ruff's format, and the numbers of the pages."""
    session.run(sys.executable, "-m", "ruff", "check", ".")
    session.run(sys.executable, "-m", "ruff", "format", "--check", ".")
    session.run(sys.executable, "docs/tables.py", "--check")


@check
def types(session):
    """Mypy on the package."""
    session.run(sys.executable, "-m", "mypy")


@check
def wheel(session):
    """Build the wheel; install and import it where JAX is the one framework."""
    session.run(sys.executable, SUPPORT / "running.py", "wheel")


@check
def library(session):
    """Build the CPU extension and test it without a framework."""
    session.run(sys.executable, SUPPORT / "running.py", "kernels")


@check
def docs(session):
    """Build the site, where needed in an environment with what that takes."""
    command = (ROOT / "docs" / "build.py",)
    if importlib.util.find_spec("furo"):
        session.run(sys.executable, *command)
        return
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    needed = settings["options.extras_require"]["docs"].split()
    with tempfile.TemporaryDirectory() as folder:
        python = running.on_top_of_this(folder, *needed)
        session.run(python, *command, Path(folder, "site"))


@check
def onnx(session):
    """What TensorFlow exports as ONNX, in an environment with its runtime."""
    with tempfile.TemporaryDirectory() as folder:
        python = running.on_top_of_this(folder, *running.ONNX)
        session.run(
            *(python, "-m", "pytest", "-q", "-m", "peers", running.EXPORTS),
            env={"KERAS_BACKEND": "tensorflow"},
        )


def suite(backend):
    """Adds the tests on one backend, one process per core."""

    @nox.session(name=backend, venv_backend="none")
    def tests(session):
        """The tests on one backend, one process per core."""
        how, *more = session.posargs or ["quick"]
        durations = {"quick": "not full", "full": "full", "all": ""}
        if how not in durations:
            session.error(f"expected quick, full or all. Received: {how}")
        paths = ["tests"]
        if backend == "torch" and how != "full":
            # The docstring examples are quick tests of torch.
            paths.append("keras_ln")
        marks = running.pytest_arguments(backend, durations[how])
        session.run(
            *(*PYTEST, "--durations=8", *marks, *more, *paths),
            env={"KERAS_BACKEND": backend},
        )


for _backend in BACKENDS:
    suite(_backend)


@check
def kernels(session):
    """Tests of the CPU extension, in a temporary folder, on every backend."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(os.environ.get("WHEELS", folder))
        wheel = running.kernels_wheel(sys.executable, place)
        installed = Path(folder, "installed")
        pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps")
        session.run(*pip, "--target", installed, wheel)
        for backend in BACKENDS:
            session.run(
                *(*PYTEST, "--kernels", *running.pytest_arguments(backend, "")),
                *(f"tests/{path}" for path in running.RUN_ON_KERNELS),
                env={
                    "KERAS_BACKEND": backend,
                    "PYTHONPATH": os.pathsep.join(
                        map(str, (ROOT, SUPPORT, installed))
                    ),
                },
            )


TABLE = Path("tests/measured/matrix.csv")
# Goldens, and what meets most of Keras and of the frameworks in few minutes.
TESTS = (
    "tests/conformance/test_goldens.py",
    "tests/contract/test_versions.py",
    "tests/contract/test_contract.py",
    "tests/contract/test_custom_vjp.py",
    "tests/engine/test_symbolic.py",
    "tests/conformance/test_swapped_for_keras.py",
    "tests/conformance/test_zoneout.py",
    "tests/conformance/test_weight_normalization_use.py",
    "tests/convert/test_conversion_of_parts.py",
    "tests/conformance/test_conformance.py",
    "tests/conformance/test_mixed_precision.py",
)
# These meet what TensorFlow does not export; torch 2.3 lacks some of the rest.
MORE = {"tensorflow": ("tests/engine/test_transformations.py",)}
SHOWN = """if True:
    import sys
    from importlib.metadata import version
    print(*map(version, sys.argv[1:]), sep=",")
"""
WITH_KERNELS = """if True:
    import numpy as np
    import keras
    import keras_ln
    x = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")
    for make in (keras_ln.LNLSTM, keras_ln.LNGRU, keras_ln.LNSimpleRNN):
        layer = make(8, seed=1)
        loop = make(8, use_fused=False)
        print(keras_ln.ops.implementation(layer))
        y = keras.ops.convert_to_numpy(layer(x))
        loop.build(x.shape)
        loop.set_weights(layer.get_weights())
        assert abs(y - keras.ops.convert_to_numpy(loop(x))).max() < 1e-5
        model = keras.Sequential([keras.Input((5, 3)), layer])
        model.compile("adam", "mse")
        model.fit(x, x[:, :1].mean(2).repeat(8, 1), verbose=0)
"""


def note(name, *row):
    """Puts a row into the table in place of the one of that name."""
    first, *rows = TABLE.read_text().splitlines()
    rows = [old for old in rows if not old.startswith(f"{name},")]
    TABLE.write_text("\n".join([first, *sorted([*rows, *row]), ""]))


def add(name, python, *packages, keras="keras"):
    """Adds a session, whose name begins with the backend's."""
    backend = name.partition("-")[0]

    tags = ["versions"] if keras == "keras" else []

    @nox.session(name=name, python=python, venv_backend="uv", tags=tags)
    def run(session):
        note(name)
        session.install(*packages)
        # Afterwards: uv keeps the versions that are installed.
        session.install("hypothesis", "pytest", "pytest-xdist", "scipy")
        # With versions that it does not support, layers run without it.
        session.install("./kernels")
        session.run(
            "python", "-c", WITH_KERNELS, env={"KERAS_BACKEND": backend}
        )
        session.run(
            *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS),
            *(*MORE.get(backend, ()), *session.posargs),
            env={"KERAS_BACKEND": backend},
        )
        found = session.run(
            *("python", "-c", SHOWN, keras, backend, "numpy"), silent=True
        )
        note(name, f"{name},{python},{found.strip()}")


def needed(backend):
    """What setup.cfg asks for, as arguments of `uv pip install`."""
    return ("-r", "setup.cfg", "--extra", backend)


LOWEST = ("--resolution", "lowest-direct")
add("tensorflow-oldest", "3.10", *needed("tensorflow"), *LOWEST)
add("tensorflow-middle", "3.12", "keras==3.12.0", "tensorflow==2.19.0")
add("tensorflow-newest", "3.13", *needed("tensorflow"))
add("jax-oldest", "3.10", *needed("jax"), *LOWEST)
add("jax-middle", "3.12", "keras==3.12.0", "jax==0.5.0", "jaxlib==0.5.0")
add("jax-newest", "3.13", *needed("jax"))
add("jax-on-3.14", "3.14", *needed("jax"))
add("torch-oldest", "3.10", *needed("torch"), *LOWEST)
add("torch-middle", "3.12", "keras==3.12.0", "torch==2.5.1")
add("torch-newest", "3.13", *needed("torch"))
add("torch-on-3.14", "3.14", *needed("torch"))
add(
    *("jax-nightly", "3.12", "--prerelease", "allow", "keras-nightly", "jax"),
    keras="keras-nightly",
)
