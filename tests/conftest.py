"""Settings that every test relies on, made before Keras is imported."""

import os
import tempfile
from pathlib import Path

import xla_flags

# JAX compiles every eager scan anew unless it finds the program here. One
# folder per process, since JAX does not write its files atomically. Those in
# the folder that .ci/run names are still there for its next commands.
_worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
if _caches := os.environ.get("KERAS_LN_JAX_CACHES"):
    _jax_cache = Path(_caches, _worker)
else:
    _temporary = tempfile.TemporaryDirectory(prefix="keras_ln_jax_")
    _jax_cache = Path(_temporary.name)
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_jax_cache)

_SETTINGS = {
    "KERAS_BACKEND": "tensorflow",
    # JAX has no float64 unless asked before its import.
    "JAX_ENABLE_X64": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "XLA_FLAGS": xla_flags.flags(xla_flags.installed()),
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

import keras  # noqa: E402  (the settings above must come first)
import pytest  # noqa: E402  (it must come after Keras' settings too)

# What runs as users run it, or has nothing to compile. Elsewhere TensorFlow,
# which takes a second for each program, runs operation by operation. JAX
# compiles even single operations: there that would take longer.
AS_IT_IS = (
    *("backend", "benchmarks", "examples", "peers"),
    *("test_architecture.py", "test_coverage.py", "test_packaging.py"),
    *("test_pairwise.py", "test_reference.py"),
)


# About what stands above the backend, and on JAX, where every new operation and
# shape takes a compilation, expensive.
FULL_ON_JAX = (
    *("analysis", "compat", "reliability", "test_exports.py"),
    *("test_statistics.py", "test_dropout.py", "test_keras_usage.py"),
    *("test_swapped_for_keras.py", "test_conversion.py"),
    *("test_conversion_of_models.py", "test_conversion_of_parts.py"),
    *("test_arguments.py", "test_sequence_arguments.py", "test_tuning.py"),
)


def pytest_addoption(parser):
    """Adds the options of this suite."""
    parser.addoption(
        "--compiled",
        action="store_true",
        help="TensorFlow compiles in every test, as users do; without it "
        "only in those marked `compiled`",
    )
    parser.addoption(
        "--kernels",
        action="store_true",
        help="run with the CPU kernels of keras-ln-kernels, which must be "
        "installed, and their tests too; without it they are off",
    )


def pytest_configure(config):
    """Turns the kernels on or off."""
    if not config.getoption("--kernels"):
        os.environ["KERAS_LN_KERNELS"] = "0"
        return
    from keras_ln import backend

    if (reason := backend.native_reason()) is not None:
        raise pytest.UsageError(f"--kernels: {reason}")


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests of the kernels, where they are off."""
    if config.getoption("--kernels"):
        return
    of_kernels = [i for i in items if i.get_closest_marker("kernels")]
    items[:] = [i for i in items if i not in of_kernels]
    config.hook.pytest_deselected(items=of_kernels)


def pytest_itemcollected(item):
    """Marks tests by their place."""
    places = item.path.relative_to(Path(__file__).parent).parts
    backend = keras.backend.backend()
    if places[0] in AS_IT_IS or backend != "tensorflow":
        item.add_marker("compiled")
    if backend == "jax" and not set(places).isdisjoint(FULL_ON_JAX):
        item.add_marker("full")


@pytest.fixture(autouse=True)
def uncompiled(request):
    """Runs tests operation by operation that need not be compiled."""
    compiled = request.config.getoption("--compiled")
    if compiled or request.node.get_closest_marker("compiled"):
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A process with some ten thousand programs of JAX in it crashes.

    Each of them is a few memory maps, of which Linux allows 65,530.
    """
    yield
    if keras.backend.backend() == "jax" and _memory_maps() > 30_000:
        import jax

        jax.clear_caches()


def _memory_maps():
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same seed and leaves no global setting."""
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
