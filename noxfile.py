"""Old and new versions, each in an environment that nox makes with uv.

    uvx nox                           all but the last one
    uvx nox -s torch-floor            one of them; -k floor: those so named
    uvx nox -s jax-nightly            Keras of last night, which may fail

The floors are the lower bounds of setup.cfg. An interpreter that is neither
installed nor to be downloaded is skipped; those of pyenv are found where
`PYENV_VERSION=3.10.13:3.12.1:3.13.0` names them. What passes has a row in
tests/measured/matrix.csv. With `UV_TORCH_BACKEND=cpu` torch comes without the
gigabytes of CUDA's libraries.
"""

from pathlib import Path

import nox

TABLE = Path("tests/measured/matrix.csv")
# Goldens, and what meets most of Keras and of the frameworks in few minutes.
TESTS = (
    "tests/conformance/test_goldens.py",
    "tests/contract/test_versions.py",
    "tests/contract/test_contract.py",
    "tests/contract/test_custom_vjp.py",
    "tests/contract/test_jacobian.py",
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

    @nox.session(
        name=name,
        python=python,
        venv_backend="uv",
        default=keras == "keras",
    )
    def run(session):
        note(name)
        session.install(*packages)
        # Afterwards, since uv replaces nothing that would do.
        session.install("hypothesis", "pytest", "pytest-xdist", "scipy")
        # Versions that the kernels do not support run without them.
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
add("tensorflow-floor", "3.10", *needed("tensorflow"), *LOWEST)
add("tensorflow-middle", "3.12", "keras==3.12.0", "tensorflow==2.19.0")
add("tensorflow-newest", "3.13", *needed("tensorflow"))
add("jax-floor", "3.10", *needed("jax"), *LOWEST)
add("jax-middle", "3.12", "keras==3.12.0", "jax==0.5.0", "jaxlib==0.5.0")
add("jax-newest", "3.13", *needed("jax"))
add("jax-on-3.14", "3.14", *needed("jax"))
add("torch-floor", "3.10", *needed("torch"), *LOWEST)
add("torch-middle", "3.12", "keras==3.12.0", "torch==2.5.1")
add("torch-newest", "3.13", *needed("torch"))
add("torch-on-3.14", "3.14", *needed("torch"))
add(
    *("jax-nightly", "3.12", "--prerelease", "allow", "keras-nightly", "jax"),
    keras="keras-nightly",
)
