"""A CUDA driver that runs the GPU kernels on the CPU.

`kernels/tests/emulated.py` builds it. Tensors on the CPU stand for those of
GPU 0, on stream 77.
"""

import contextlib
import ctypes
import functools
import importlib
import subprocess
import sys
import tempfile
from pathlib import Path

import keras
import pytest
from descriptors import BY_NAME
from recurrence import Problem

from keras_ln.engine import gpu as cuda

TESTS = Path(__file__).parents[2] / "kernels" / "tests"
STREAM = 77
# Of layers in these tests: units, and what operands are rounded to. 40 units
# take two blocks, which meet, and on an A100 in global memory.
BUILT = [
    *((3, "3xtf32", "H100"), (24, "bfloat16", "H100"), (3, "tf32", "H100")),
    *((40, "3xtf32", "H100"), (40, "3xtf32", "A100")),
]


# Products of float32 split in two of TF32, and sums in float32.
CLOSE = {"rtol": 2e-5, "atol": 2e-5}


def launches(driver):
    """The launches in the driver's log."""
    return [line for line in driver.log() if line[0] in ("cluster", "grid")]


def layer_of(name="LNLSTM", units=3, **arguments):
    """A layer with random weights in float32."""
    arguments |= {"units": units, "dtype": "float32"}
    return Problem(BY_NAME[name], arguments).layer()


def emulated_module():
    """`kernels/tests/emulated.py`."""
    # For a moment: other modules there have the names of some here.
    sys.path.append(str(TESTS))
    try:
        return importlib.import_module("emulated")
    finally:
        sys.path.remove(str(TESTS))


@functools.cache
def emulation(library=None):
    """The driver, built unless it was: GPU 0 is an H100, GPU 1 an A100."""
    from keras_ln_kernels import gpu_plan

    emulated = emulated_module()
    if library is not None:
        return emulated.Emulation(library)
    plans = []
    for units, format, device in BUILT:
        of = gpu_plan.limits(*emulated.DEVICES[device][:3])
        for cell in gpu_plan.CELLS:
            for backward in (False, True):
                every = gpu_plan.plans(cell, backward, units, format, of)
                plans.append(next(every))
                if (units, format) == (3, "3xtf32"):  # And with 16 rows.
                    plans.append(gpu_plan.wider(plans[-1], of))
    folder = tempfile.mkdtemp(prefix="keras_ln_gpu_")
    return emulated.Emulation(emulated.build(folder, plans, "-O1"))


def forget(driver, monkeypatch, rows=None):
    """In a test: plans, limits, and the kernels for groups of so many rows."""
    opened = driver.gpu
    for name in ("_limits", "_chosen", "_at_once"):
        monkeypatch.setattr(opened, name, {})
    kept = {
        k: v for k, v in opened._kernels.items() if f", {rows}, " not in k[0]
    }
    monkeypatch.setattr(opened, "_kernels", kept)


@contextlib.contextmanager
def failing(driver, function, code):
    """Lets a function of the driver end with that error."""
    driver.fake.fake_fail(function.encode(), code)
    try:
        yield
    finally:
        driver.fake.fake_fail(function.encode(), 0)


def _binding():
    name = f"keras_ln.backend.{keras.backend.backend()}.gpu"
    return importlib.import_module(name)


@functools.cache
def _stand_in(remember=None):
    """Registers the handler of GPUs for a CPU, with a stream."""
    import jaxlib
    from keras_ln_kernels import xla

    from keras_ln.backend import gpu

    emulated = emulated_module()
    library = Path(tempfile.mkdtemp(prefix="keras_ln_xla_"), "stand_in.so")
    headers = Path(jaxlib.__file__).parent / "include"
    options = ["-shared", "-fPIC", "-std=c++17", f"-I{headers}"]
    source = TESTS / "cuda" / "stand_in.cc"
    command = [*emulated.compiler(), *options, source, "-o", library]
    subprocess.run(command, check=True)
    made = ctypes.CDLL(str(library))
    handler = ctypes.cast(xla.gpu_handler(), ctypes.c_void_p)
    pointers = ctypes.c_void_p(STREAM), ctypes.c_void_p(remember)
    made.stand_in_use(handler, *pointers)
    cpu = {"jax": "cpu", "tensorflow": "Host"}[keras.backend.backend()]
    return _binding().register({gpu.TARGET: made.stand_in}, cpu)


def use_two(monkeypatch, library):
    """As `use` on JAX, where two devices of a CPU are two GPUs of a kind.

    Device 1 has the next stream.
    """
    made = emulation(library)
    made.become(1, "H100")
    use(monkeypatch, library=library)
    made.fake.fake_forget()
    monkeypatch.setattr(_binding(), "_devices", lambda: (0, 1))
    remember = ctypes.cast(made.fake.fake_memory, ctypes.c_void_p).value
    stand_in = functools.partial(_stand_in, remember)
    _register_with(monkeypatch, stand_in)
    return made


def _register_with(monkeypatch, registered):
    """Registers the kernels with XLA in that way."""
    from keras_ln import backend
    from keras_ln.backend import gpu

    reason = gpu.reason_with(_binding()._numbers, registered)
    monkeypatch.setattr(backend, "gpu_reason", reason)


def use(monkeypatch, device=0, library=None):
    """Lets the backend find the driver; returns the emulation.

    All memory is of one of its devices.
    """
    from keras_ln_kernels import gpu

    from keras_ln import backend

    made = emulation(library)
    made.fake.fake_forget()
    number = ctypes.c_uint64
    made.fake.fake_memory(number(0), number(2**63), device)
    monkeypatch.setenv("KERAS_LN_KERNELS", "cuda")
    monkeypatch.setattr(gpu, "gpu", lambda: made.gpu)
    monkeypatch.setattr(gpu, "unsupported_reason", lambda: None)
    monkeypatch.setattr(backend, "native_reason", lambda: "Not in this test.")
    binding = _binding()
    if keras.backend.backend() == "torch":
        import torch

        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        monkeypatch.setattr(binding, "_number", lambda _: device)
        monkeypatch.setattr(binding, "_stream", lambda _: STREAM)
        monkeypatch.setattr(binding, "_captures", lambda: False)
        monkeypatch.setattr(binding, "_known", {})
    else:
        monkeypatch.setattr(binding, "_devices", lambda: (device,))
        _register_with(monkeypatch, _stand_in)
        formats = {"float32": "3xtf32"}
        monkeypatch.setattr(binding, "format_of", lambda o: formats.get(o, o))
    if keras.backend.backend() == "tensorflow":
        monkeypatch.setattr(binding, "_PLATFORM", "CPU")
    if keras.backend.backend() == "jax":
        custom_vjp = backend.custom_vjp

        def for_cpu(*args, platform="cpu", **options):
            return custom_vjp(*args, **options)

        monkeypatch.setattr(backend, "custom_vjp", for_cpu)
    bind = importlib.import_module("keras_ln.engine.bind")
    monkeypatch.setattr(bind, "_plans", {})
    # Ops that were made for another device.
    made_anew = functools.cache(cuda._new_operation)
    monkeypatch.setattr(cuda, "_operation", made_anew)
    return made


if __name__ == "__main__":  # The child of the check of GPU kernels.
    from keras_ln.gpu import child

    library, problems = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        use(patch, library=library)
        child.main(problems)
