"""Settings that every test relies on, made before Keras is imported.

Keras is not imported here, since pytest-xdist's first process, which runs no
test, reads this file too.
"""

import gc
import importlib.metadata
import os
import re
import tempfile
import types
from pathlib import Path

import pytest

# To optimise a program takes longer than to run it on so little.
_ALWAYS = "--xla_backend_optimization_level=0"
# Fewer functions, and one thread to compile them.
_QUICK_TO_COMPILE = (
    "--xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)

# Versions that know the others, from the first to before the last. XLA ends
# the process where it does not know one.
_KNOW_IT = {
    "jaxlib": ((0, 5, 3), (0, 11, 1)),
    "tensorflow": ((2, 20), (2, 22)),
    "tensorflow-cpu": ((2, 20), (2, 22)),
}


def _installed():
    """Versions of the packages that have XLA in them, without importing one."""
    versions = {}
    for name in _KNOW_IT:
        for found in importlib.metadata.distributions(name=name):
            versions[name] = found.version
    return versions


def _xla_flags(versions):
    """XLA_FLAGS that all of the versions know, by names of packages."""
    for name, version in versions.items():
        first, last = _KNOW_IT[name]
        if not first <= _numbers(version) < last:
            return _ALWAYS
    return f"{_ALWAYS} {_QUICK_TO_COMPILE}"


def _numbers(version):
    """(2, 22, 0) of "2.22.0rc0"."""
    return tuple(map(int, re.findall(r"\.?(\d+)", version)[:3]))


# JAX compiles every eager scan anew unless it finds the program in this folder.
# All processes share it: one that reads a file while another writes it gets a
# warning and compiles. A folder that is named outside is kept.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _jax_cache = tempfile.TemporaryDirectory(prefix="keras_ln_jax_")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _jax_cache.name

_SETTINGS = {
    "KERAS_BACKEND": "torch",
    # JAX has no float64 unless asked before its import.
    "JAX_ENABLE_X64": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Else the folder's name is in the key of each program.
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    "XLA_FLAGS": _xla_flags(_installed()),
    # The tests' tensors are small, so threads cost more than they give, and
    # pytest-xdist already runs one process per core.
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Figures are drawn to files, on machines without a display too.
    "MPLBACKEND": "Agg",
}
for _name, _value in _SETTINGS.items():
    os.environ.setdefault(_name, _value)

BACKEND = os.environ["KERAS_BACKEND"]

# What the quick run repeats on TensorFlow and JAX. The others of the tests that
# run there are left to --full, since XLA takes long for them.
QUICK_EVERYWHERE = (
    *("tests/contract/", "tests/exports/"),
    "tests/conformance/test_against_oracle.py",
    "tests/conformance/test_conformance.py",
    "tests/conformance/test_second_derivatives.py::test_by_xla_and_without_it",
    "tests/conformance/test_training_modes.py",
    "tests/engine/test_forward_mode.py",
    "tests/engine/test_transformations.py",
)


def pytest_addoption(parser):
    """Adds the options of this suite."""
    parser.addoption(
        "--kernels",
        action="store_true",
        help="run with the CPU extension (keras-ln-kernels), which must be "
        "installed, and their tests too; without it they are off",
    )
    parser.addoption(
        "--every-backend",
        action="store_true",
        help="as on TensorFlow and JAX: import only the files that mark a test "
        "`every_backend` or `on_tensorflow`, and mark all but a few `full`",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process per core, at most 8; a single file runs in pytest's own.

    Each takes seconds for its imports, and up to 7 GB for what XLA compiles.
    """
    paths = [argument.partition("::")[0] for argument in config.args]
    if len(paths) == 1 and Path(paths[0]).is_file():
        return 0
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist reads it.
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), 8)
    return min(os.cpu_count() or 1, 8)


def pytest_configure(config):
    """Turns the kernels on or off."""
    if not config.getoption("--kernels"):
        os.environ["KERAS_LN_KERNELS"] = "0"
        return
    from keras_ln import backend

    if (reason := backend.native_reason()) is not None:
        raise pytest.UsageError(f"--kernels: {reason}")


def pytest_ignore_collect(collection_path, config):
    """With --every-backend, ignores the other files."""
    if collection_path.suffix == ".py" and config.getoption("--every-backend"):
        # `pairwise` marks some of its cases.
        marks = "every_backend|on_tensorflow|pairwise"
        if not re.search(marks, collection_path.read_text("utf-8")):
            return True


def pytest_collection_modifyitems(config, items):
    """Deselects tests that cannot run here, and puts the longest file first."""
    off = [] if config.getoption("--kernels") else ["kernels"]
    off += [] if BACKEND == "tensorflow" else ["on_tensorflow"]
    left_out = [i for i in items if any(map(i.get_closest_marker, off))]
    items[:] = [i for i in items if i not in left_out]
    config.hook.pytest_deselected(items=left_out)
    if config.getoption("--every-backend"):
        for item in items:
            if not item.nodeid.startswith(QUICK_EVERYWHERE):
                item.add_marker("full")
    # At the end the other processes would wait for it.
    items.sort(key=lambda item: item.path.stem != "test_training_modes")


def _freeze():
    """Takes all objects that exist out of later garbage collections.

    Keras collects in every `clear_session`, of which the scripts have many.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_finish():
    """Makes garbage collections fast and rare.

    They visit what was imported and all that TensorFlow and JAX have traced.
    """
    _freeze()
    gc.set_threshold(20_000, 50, 100)


def pytest_unconfigure(config):
    """Ends a process of pytest-xdist once all its results are sent.

    Python would spend seconds on freeing what the frameworks hold.
    """
    if hasattr(config, "workerinput"):
        os._exit(0)


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """Freezes what the tests of a file leave behind, caches for example.

    Not on JAX: a frozen cycle is never freed, and may hold programs, of which a
    process must not have too many.
    """
    yield
    if BACKEND != "jax":
        _freeze()


@pytest.fixture(autouse=True)
def traced_once(monkeypatch):
    """The optimizer is built before `fit`.

    TensorFlow traces an update twice that creates variables. With `metrics`
    they are still created in it, so some tests show that way too.
    """
    if BACKEND != "tensorflow":
        return
    import keras

    fit = keras.Model.fit

    def fit_with_built_optimizer(model, *args, **kwargs):
        optimizer = getattr(model, "optimizer", None)
        if model.built and optimizer and not optimizer.built:
            optimizer.build(model.trainable_variables)
        return fit(model, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", fit_with_built_optimizer)


@pytest.fixture(autouse=True, scope="module")
def unoptimized_graphs(request):
    """To optimise a graph takes TensorFlow longer than to run it on so little.

    Optimised, as users have it, are the modes of training, which have every
    layer, and what runs in a process of its own.
    """
    if BACKEND == "tensorflow":
        import tensorflow as tf

        off = request.path.stem != "test_training_modes"
        options = {"disable_meta_optimizer": off}
        tf.config.optimizer.set_experimental_options(options)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A process with some ten thousand programs of JAX in it crashes.

    Each of them is a few memory maps, of which Linux allows 65,530.
    """
    yield
    if BACKEND == "jax" and _memory_maps() > 30_000:
        import jax

        jax.clear_caches()


def _memory_maps():
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture(autouse=True, scope="session")
def seeds_of_one_backend():
    """`set_random_seed` leaves TensorFlow alone, whose import takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        if BACKEND != "tensorflow":
            no_module = types.SimpleNamespace(available=False)
            patch.setattr("keras.src.utils.rng_utils.tf", no_module)
        yield


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same seed and leaves no global setting."""
    import keras

    floatx = keras.config.floatx()
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(20160721)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture
def without_kernels(monkeypatch):
    """For tests of the other implementations, with --kernels too."""
    monkeypatch.setenv("KERAS_LN_KERNELS", "0")
