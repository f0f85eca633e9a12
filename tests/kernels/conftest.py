"""What the tests of the CPU extension have in common."""

import pytest

from keras_ln import backend
from keras_ln.engine.cpu import _operation


@pytest.fixture
def driver(monkeypatch):
    """The emulated driver, which runs the GPU kernels while the test runs."""
    import gpu_emulation  # It imports Keras.

    return gpu_emulation.use(monkeypatch)


@pytest.fixture
def calls(monkeypatch):
    """What the kernels are asked for, while the test runs."""
    made = []
    call_native = backend.call_native

    def recorded(call, arrays):
        made.append(call)
        return call_native(call, arrays)

    monkeypatch.setattr(backend, "call_native", recorded)
    _operation.cache_clear()
    yield made
    _operation.cache_clear()
