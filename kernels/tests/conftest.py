import emulated
import gpu_problems
import pytest

import keras_ln_kernels
from keras_ln_kernels.library import library


def available():
    """The instruction sets that this machine runs."""
    found = []
    for name in ("avx512", "avx2", "neon", "generic"):
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
def as_many_threads_as_asked():
    """In small problems too, which take few threads otherwise."""
    keras_ln_kernels.use_sharing("rows")
    yield
    keras_ln_kernels.use_sharing(None)


@pytest.fixture(params=["rows", "columns"])
def each_sharing(request, as_many_threads_as_asked):
    """Runs a test by rows and by columns."""
    keras_ln_kernels.use_sharing(request.param)
    return request.param


@pytest.fixture(scope="session")
def emulation(tmp_path_factory):
    """A driver that runs GPU kernels on the CPU."""
    folder = tmp_path_factory.mktemp("emulated")
    return emulated.Emulation(emulated.build(folder, gpu_problems.INSTANCES))
