"""Settings that every test relies on, made before Keras is imported."""

import os
import tempfile

# JAX compiles every eager scan anew unless it finds the program here. One
# folder per process, since JAX does not write its files atomically.
_jax_cache = tempfile.TemporaryDirectory(prefix="keras_ln_jax_")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _jax_cache.name

_SETTINGS = {
    "KERAS_BACKEND": "tensorflow",
    # JAX has no float64 unless asked before its import.
    "JAX_ENABLE_X64": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # To optimise a program takes longer than to run it on so little.
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
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


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A process may hold some thousand programs of JAX, then it crashes.

    Each of them is a few memory maps, of which Linux allows 65,530.
    """
    yield
    if keras.backend.backend() == "jax":
        import jax

        jax.clear_caches()


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same seed and leaves no global setting."""
    floatx = keras.config.floatx()
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(20160721)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)
