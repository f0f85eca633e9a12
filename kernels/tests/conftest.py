import pytest

import keras_ln_kernels
from keras_ln_kernels.library import library


def available():
    """The instruction sets that this machine runs."""
    found = []
    for name in ("avx512", "avx2", "neon"):
        if library().kln_use_instruction_set(name.encode()) is None:
            found.append(name)
    keras_ln_kernels.use_instruction_set(None)
    return found


@pytest.fixture(params=available())
def each_instruction_set(request):
    """Runs a test with every one of them."""
    keras_ln_kernels.use_instruction_set(request.param)
    yield request.param
    keras_ln_kernels.use_instruction_set(None)


@pytest.fixture(autouse=True)
def as_many_threads_as_asked(monkeypatch):
    """In small problems too, which take few threads otherwise."""
    monkeypatch.setattr(library(), "kln_useful_threads", lambda p: p.threads)
